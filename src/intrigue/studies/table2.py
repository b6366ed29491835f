"""Table 2 of the paper: 26 Atari games on the bonus alone; human-normalised scores of Disagreement, ICM and NNM.

The paper prints a mean of 1.09 for NNM, twice the others'. Two of its constants are wrong and two of its games carry
most of that mean; `--recheck-paper` computes the printed table again and says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, final

from intrigue.studies.atari.paper import CLAIMED_26, GAMES_26, Claim
from intrigue.studies.atari.recheck import recheck_table2
from intrigue.studies.atari.score_study import ScoreStudy
from intrigue.studies.atari.study import NOMINAL_STEPS, SMOKE, Rung, budgets_of
from intrigue.studies.base import Budget, Conclusion
from intrigue.studies.registry import register_study

# Ours: three games that carry the paper's mean, and one in which NNM loses.
SOME_GAMES = ("Breakout", "Jamesbond", "Gopher", "BankHeist")
RUNGS = {
    "smoke": SMOKE,
    "hour": Rung(SOME_GAMES, 275 * 16_384, 1),  # 12 runs of 4.5M steps
    "full": Rung(GAMES_26, NOMINAL_STEPS, 3),
}


@register_study("table2")
@final
class Table2(ScoreStudy):
    """26 games, three bonuses."""

    title: ClassVar[str] = "Table 2: 26 Atari games on the bonus alone"
    games: ClassVar[Sequence[str]] = GAMES_26
    claimed: ClassVar[Mapping[str, Claim]] = CLAIMED_26
    rungs: ClassVar[Mapping[str, Rung]] = RUNGS
    budgets: ClassVar[Mapping[str, Budget]] = budgets_of(RUNGS)

    def recheck(self) -> Conclusion:
        """The paper's own arithmetic."""
        return recheck_table2()
