"""Figure 4 of the paper: learning curves on six Atari games, the bonus alone; NNM beside Disagreement, ICM and RND.

The text names two of the six games, Gopher and Kung Fu Master, and says that NNM converges at more than twice the
others' score there, and that it has evident advantages in most games. The picture itself is not in the preprint's
source, so no curve of it can be compared; the other four games here are ours, those that carry Table 2's mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, final

from intrigue.scores.stats import mean
from intrigue.studies.atari.study import NOMINAL_STEPS, SMOKE, AtariLevel, AtariStudy, Variant, describe_data
from intrigue.studies.base import SCORE_COLUMNS, Budget, Conclusion, TableRow, Verdict
from intrigue.studies.common.arm_names import ArmName
from intrigue.studies.common.results import Results
from intrigue.studies.common.study import budgets_of
from intrigue.studies.common.verdicts import (
    compare_with_best,
    format_score,
    make_order_row,
    mean_difference,
    measure_methods,
    measure_other_methods,
)
from intrigue.studies.registry import register_study

NAMED_GAMES = ("Gopher", "KungFuMaster")  # by the text
GAMES = (*NAMED_GAMES, "Breakout", "Jamesbond", "Krull", "UpNDown")
OURS = ArmName("nnm-atari")
RIVALS = (ArmName("disagreement-atari"), ArmName("icm-atari"), ArmName("rnd-atari"))
LEVELS = {
    "smoke": SMOKE,
    "hour": AtariLevel(GAMES, 137 * 16_384, 1),  # 24 runs of 2.2M steps
    "full": AtariLevel(GAMES, NOMINAL_STEPS, 3),
}


@register_study("fig4")
@final
class Figure4(AtariStudy):
    """Six games, four bonuses."""

    title: ClassVar[str] = "Figure 4: learning curves on the bonus alone"
    variants: ClassVar[Sequence[Variant]] = tuple(Variant(name.preset) for name in (OURS, *RIVALS))
    levels: ClassVar[Mapping[str, AtariLevel]] = LEVELS
    budgets: ClassVar[Mapping[str, Budget]] = budgets_of(LEVELS)

    def judge(self, results: Results) -> Conclusion:
        """NNM against the best of the others, game by game."""
        rows = [row for game in GAMES for row in self._game(results, game)]
        complete = [game for game in GAMES if all(results.raw(name, game) for name in (OURS, *RIVALS))]
        ahead = [game for game in complete if compare_with_best(results, game, OURS, RIVALS)[0]]
        decided = [row.verdict for row in rows if "above the best other" in row.quantity]
        won = sum(verdict == "PASS" for verdict in decided)
        lost = sum(verdict == "FAIL" for verdict in decided)
        most: Verdict = "PASS" if won > len(GAMES) / 2 else "FAIL" if lost >= len(GAMES) / 2 else "SHORT"
        text = f"{len(ahead)} of {len(complete)}"
        seeds = min((results.seeds(OURS, [game]) for game in complete), default=0)
        rows.append(TableRow("games in which NNM is ahead: most of 6", "most", text, seeds, most))
        rows += measure_other_methods(results, GAMES, (OURS, *RIVALS))
        words = describe_data(results, GAMES, [OURS, *RIVALS])
        words.append(
            "The paper's picture is not in its source; only what its text says is judged. Of the six games the text "
            f"names {' and '.join(NAMED_GAMES)}; the others are ours."
        )
        return Conclusion(f"NNM is ahead of every other bonus in {text} games", rows, words, columns=SCORE_COLUMNS)

    def _game(self, results: Results, game: str) -> list[TableRow]:
        rows = measure_methods(results, game, (OURS, *RIVALS))
        ours = results.raw(OURS, game)
        if not ours or not any(results.raw(name, game) for name in RIVALS):
            return rows
        _, best, interval = compare_with_best(results, game, OURS, RIVALS)
        theirs = results.raw(best, game)
        text = f"{format_score(mean(ours))} to {format_score(mean(theirs))} ({best.preset})"
        rows.append(make_order_row(f"{game}: NNM above the best other", ("-", text), (ours, theirs), interval))
        if game in NAMED_GAMES:
            twice = mean_difference(ours, theirs, times=2.0)
            times = f"{mean(ours) / mean(theirs):.2f}×" if mean(theirs) > 0 else "-"
            quantity = f"{game}: NNM more than twice the best other"
            rows.append(make_order_row(quantity, ("> 2×", times), (ours, theirs), twice))
        return rows
