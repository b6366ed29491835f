"""Figure 7 of the paper: Atari scores with and without Gaussian noise of 0.25 on the features of the bonus.

The text says: Disagreement loses in all three games, ICM in the first two, NNM only in James Bond, and gains in the
other two. It names no other game, and the picture is not in the preprint's source; Breakout and Gopher here are ours,
and ICM's claim cannot be tied to games. Two things are open in the paper and both are run:

    absolute   σ = 0.25 as it stands, whatever the features' size
    relative   σ = 0.25 of the features' own spread: with layer normalisation, as in nnm-atari, the two are the same;
               raw random features are larger, so the absolute noise is weaker on them

Noise is drawn once for all members of an ensemble, on what the models are given and on what they are to predict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, final

from intrigue.scores.stats import mean
from intrigue.studies.atari.study import (
    METHODS,
    NOMINAL_STEPS,
    SMOKE,
    AtariLevel,
    AtariStudy,
    Variant,
    describe_data,
)
from intrigue.studies.base import SCORE_COLUMNS, Budget, Conclusion, TableRow, Verdict
from intrigue.studies.common.arm_names import ArmName
from intrigue.studies.common.results import Results
from intrigue.studies.common.study import budgets_of
from intrigue.studies.common.verdicts import (
    flip,
    format_interval,
    format_score,
    format_scores,
    judge_order,
    mean_difference,
)
from intrigue.studies.registry import register_study

GAMES = ("Jamesbond", "Breakout", "Gopher")  # the first by the text, the others ours
SIGMA = 0.25  # the paper
ABSOLUTE = {"curiosity.feature_noise": SIGMA}
RELATIVE = {"curiosity.feature_noise": SIGMA, "curiosity.feature_noise_units": "relative"}
NOISES: Mapping[str, Mapping[str, Any]] = {"absolute": ABSOLUTE, "relative": RELATIVE}
# Whether the text says that the method loses (True) or does not (False); None: not tied to a game.
CLAIMS: Mapping[str, Mapping[str, bool | None]] = {
    "Disagreement": {"Jamesbond": True, "Breakout": True, "Gopher": True},
    "ICM": {"Jamesbond": None, "Breakout": None, "Gopher": None},
    "NNM": {"Jamesbond": True, "Breakout": False, "Gopher": False},
}
WORDS = {True: "loses", False: "gains", None: "-"}
LEVELS = {
    "smoke": replace(SMOKE, skipped=[Variant(name.preset, RELATIVE).name for name in METHODS.values()]),
    "hour": AtariLevel(GAMES, 122 * 16_384, 1),  # 27 runs of 2.0M steps
    "full": AtariLevel(GAMES, NOMINAL_STEPS, 3),
}


@register_study("fig7")
@final
class Figure7(AtariStudy):
    """Three games, three bonuses, without noise and with it in both units."""

    title: ClassVar[str] = "Figure 7: noise on the features"
    variants: ClassVar[Sequence[Variant]] = tuple(
        Variant(name.preset, changes) for name in METHODS.values() for changes in ({}, *NOISES.values())
    )
    levels: ClassVar[Mapping[str, AtariLevel]] = LEVELS
    budgets: ClassVar[Mapping[str, Budget]] = budgets_of(LEVELS)

    def judge(self, results: Results) -> Conclusion:
        """Score with noise minus score without, method by method."""
        rows = [
            row
            for units in NOISES
            for label in METHODS
            for game in GAMES
            for row in self._gap(results, label, game, units)
        ]
        names = [variant.name for variant in self.variants]
        words = describe_data(results, GAMES, names)
        words += [
            "A row's figure is the score with noise minus the score without. The text names James Bond alone; the "
            "other two games are ours, so a verdict there is on the claim carried over to them. Which two games ICM "
            "is said to lose is not stated.",
        ]
        lost = {label: self._lost(results, label) for label in METHODS}
        text = "; ".join(f"{label} in {count} of {games}" for label, (count, games) in lost.items() if games)
        headline = f"Lower with noise of {SIGMA}: {text}" if text else "No game has runs with and without noise yet"
        return Conclusion(headline, rows, words, columns=SCORE_COLUMNS)

    def _gap(self, results: Results, label: str, game: str, units: str) -> list[TableRow]:
        clean, noisy = self._pair(results, label, game, units)
        if not clean or not noisy:
            return []
        interval = mean_difference(noisy, clean)
        claim = CLAIMS[label][game]
        share = f" ({(mean(noisy) - mean(clean)) / abs(mean(clean)):+.0%})" if mean(clean) else ""
        sign = "+" if mean(noisy) > mean(clean) else ""
        text = (
            f"{sign}{format_score(mean(noisy) - mean(clean))}{share}: {format_scores(noisy)} to {format_scores(clean)}"
        )
        verdict: Verdict | None = None if claim is None else judge_order(flip(interval, keep=claim is False))
        quantity = f"{game}: {label} with {units} noise"
        return [
            TableRow(
                quantity, WORDS[claim], text, min(len(clean), len(noisy)), verdict, interval=format_interval(interval)
            )
        ]

    def _pair(self, results: Results, label: str, game: str, units: str) -> tuple[list[float], list[float]]:
        preset = METHODS[label].preset
        noisy = Variant(preset, NOISES[units]).name
        return results.raw(ArmName(preset), game), results.raw(noisy, game)

    def _lost(self, results: Results, label: str) -> tuple[int, int]:
        """Games with a lower mean under absolute noise, and games with both scores."""
        pairs = [self._pair(results, label, game, "absolute") for game in GAMES]
        held = [(mean(clean), mean(noisy)) for clean, noisy in pairs if clean and noisy]
        return sum(noisy < clean for clean, noisy in held), len(held)
