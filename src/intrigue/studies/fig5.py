"""Figure 5 of the paper: bonus and game score together, α = 1 and β = 2, on three Atari games.

The text says that NNM has higher scores and less variance than the other methods. It names neither the games nor the
methods, and the picture is not in the preprint's source; games and rivals here are ours. How the two rewards are
brought to one scale is open in the paper too: the `-int-ext` presets scale the bonus alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, final

from intrigue.scores.stats import mean, std
from intrigue.studies.atari.study import NOMINAL_STEPS, SMOKE, AtariLevel, AtariStudy, Variant, describe_data
from intrigue.studies.base import SCORE_COLUMNS, Budget, Conclusion, TableRow
from intrigue.studies.common.arm_names import ArmName
from intrigue.studies.common.results import Results
from intrigue.studies.common.study import budgets_of
from intrigue.studies.common.verdicts import (
    compare_with_best,
    format_score,
    make_order_row,
    measure_methods,
    measure_other_methods,
    spread_interval,
)
from intrigue.studies.registry import register_study

GAMES = ("Breakout", "Gopher", "Jamesbond")  # ours
OURS = ArmName("nnm-atari-int-ext")
RIVALS = (ArmName("disagreement-atari-int-ext"), ArmName("icm-atari-int-ext"), ArmName("rnd-atari-int-ext"))
CONTROL = ArmName("none-atari")  # the score alone: what every bonus has to add to
LEVELS = {
    "smoke": SMOKE,
    "hour": AtariLevel(GAMES, 219 * 16_384, 1),  # 15 runs of 3.6M steps
    "full": AtariLevel(GAMES, NOMINAL_STEPS, 3),
}


@register_study("fig5")
@final
class Figure5(AtariStudy):
    """Three games, four bonuses with the game's score added, and the score alone."""

    title: ClassVar[str] = "Figure 5: bonus and game score together"
    variants: ClassVar[Sequence[Variant]] = tuple(Variant(name.preset) for name in (OURS, *RIVALS, CONTROL))
    levels: ClassVar[Mapping[str, AtariLevel]] = LEVELS
    budgets: ClassVar[Mapping[str, Budget]] = budgets_of(LEVELS)

    def judge(self, results: Results) -> Conclusion:
        """Score and spread of NNM against the others, game by game."""
        rows = [row for game in GAMES for row in self._game(results, game)]
        rows += measure_other_methods(results, GAMES, (OURS, *RIVALS, CONTROL))
        held = [game for game in GAMES if results.raw(OURS, game) and any(results.raw(name, game) for name in RIVALS)]
        ahead = [game for game in held if compare_with_best(results, game, OURS, RIVALS)[0]]
        words = describe_data(results, GAMES, [OURS, *RIVALS, CONTROL])
        words.append("The paper names neither the games nor the methods of this figure; both are ours.")
        headline = f"With the game's score beside it, NNM is ahead in {len(ahead)} of {len(held)} games"
        return Conclusion(headline, rows, words, columns=SCORE_COLUMNS)

    def _game(self, results: Results, game: str) -> list[TableRow]:
        rows = measure_methods(results, game, (OURS, *RIVALS, CONTROL))
        ours = results.raw(OURS, game)
        held = [name for name in RIVALS if results.raw(name, game)]
        if not ours or not held:
            return rows
        _, best, interval = compare_with_best(results, game, OURS, RIVALS)
        theirs = results.raw(best, game)
        text = f"{format_score(mean(ours))} to {format_score(mean(theirs))} ({best.preset.removesuffix('-int-ext')})"
        rows.append(make_order_row(f"{game}: NNM above the best other", ("yes", text), (ours, theirs), interval))
        calmest = min(held, key=lambda name: std(results.raw(name, game)) or 0.0)
        spread = spread_interval(results.raw(calmest, game), ours)  # positive: ours is smaller
        pair = [std(results.raw(name, game)) for name in (OURS, calmest)]
        shown = " to ".join("-" if value is None else format_score(value) for value in pair)
        quantity = f"{game}: NNM's spread over seeds below the smallest other"
        return [*rows, make_order_row(quantity, ("yes", shown), (ours, theirs), spread)]
