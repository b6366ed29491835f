"""Table 3 of the paper: 57 Atari games on the bonus alone; human-normalised scores of Disagreement, ICM and NNM.

The paper prints six figures and no scores: they were to be in a supplement that the preprint lacks. So its figures
cannot be recomputed, and only the 26 games of Table 2 have a printed score to hold ours against.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, final

from intrigue.studies.atari.paper import CLAIMED_57, GAMES_26, GAMES_57, Claim
from intrigue.studies.atari.recheck import recheck_table3
from intrigue.studies.atari.score_study import ScoreStudy
from intrigue.studies.atari.study import NOMINAL_STEPS, SMOKE, Rung, budgets_of
from intrigue.studies.base import Budget, Conclusion
from intrigue.studies.registry import register_study

# Ours: every fifth of the 31 games that Table 2 lacks, in alphabetical order; nothing was looked at to choose them.
SOME_GAMES = tuple(game for game in GAMES_57 if game not in GAMES_26)[::5][:6]
RUNGS = {
    "smoke": SMOKE,
    "hour": Rung(SOME_GAMES, 183 * 16_384, 1),  # 18 runs of 3M steps
    "full": Rung(GAMES_57, NOMINAL_STEPS, 3),
}


@register_study("table3")
@final
class Table3(ScoreStudy):
    """57 games, three bonuses."""

    title: ClassVar[str] = "Table 3: 57 Atari games on the bonus alone"
    games: ClassVar[Sequence[str]] = GAMES_57
    claimed: ClassVar[Mapping[str, Claim]] = CLAIMED_57
    rungs: ClassVar[Mapping[str, Rung]] = RUNGS
    budgets: ClassVar[Mapping[str, Budget]] = budgets_of(RUNGS)

    def recheck(self) -> Conclusion:
        """What follows from the printed figures alone."""
        return recheck_table3()
