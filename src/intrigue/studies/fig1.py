"""Figure 1 of the paper: does the nuclear norm react less than its rivals when noise or an outlier spoils its input?

The paper reads its figure as: far more stable and robust than variance and log-l2. In which unit is left open, and the
answer depends on it. Three are computed here:

    fold        value over the value at size 0, the picture the paper draws. A measure with a large constant part
                changes little by this count, whatever it measures; a logarithm has no fixed zero, so its fold depends
                on the unit of Z.
    range       how far the value moves between equal rows (0) and independent unit rows (1), its working range.
    ranking     the chance that a state of spread 0.2 outscores one of spread 0.1 under noise. Free of any unit, and
                what a learner needs. Noisy rows are distributed as cleaner rows of larger spread, so no measure can
                subtract the noise; the question is only how much of the order is left. Raw rows, and rows layer
                normalized: the ratio is blind to scale, so encodings of unequal length blur it.

`fig1_numbers.py` computes, and chooses where the paper is silent; `fig1_plots.py` draws; this file judges.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from intrigue.studies.base import Arm, Budget, Conclusion, Study, TableRow
from intrigue.studies.fig1_numbers import (
    CASES,
    DIMENSIONS,
    FEATURES,
    MEASURES,
    ROWS,
    SPOILERS,
    Array,
    Fig1Numbers,
    compute,
)
from intrigue.studies.fig1_plots import draw
from intrigue.studies.registry import register_study

__all__ = ["Fig1Numbers", "Finding", "collect_findings", "compute", "draw", "write_csv", "write_verdicts"]

QUOTED_SIZE = 0.25  # the noise of the paper's robustness experiment, so that one number can be carried over
SATURATED = 0.95  # ours: from here on a measure has no room left in which noise could show
READINGS = {
    "fold_noise": "changes less under noise, relative to its own value",
    "fold_outlier_row": "changes less under an outlying row, relative to its own value",
    "not_saturated": "is calm on independent rows although it could still react",
    "range": "moves less within its own working range",
    "ranking": "tells novel from known better under noise",
    "shift": "is calmer when one value is added to everything",
}
RIVALS = ("variance", "log_l2")
COLUMNS = ("case", "spoiler", "measure", "size", "mean", "low", "high", "fold", "fold_low", "fold_high", "range_share")


@dataclass(frozen=True)
class Finding:
    """One reading of the paper's claim, whether it holds in these numbers, and a sentence with the numbers in it."""

    name: str
    holds: bool
    sentence: str


@register_study("fig1")
@final
class Figure1(Study):
    """The paper's toy figure, computed; nothing is trained."""

    title: ClassVar[str] = "Figure 1: noise and outliers"
    budgets: ClassVar[Mapping[str, Budget]] = {
        "smoke": Budget(steps=0, seeds=200),
        "hour": Budget(steps=0, seeds=2_000),
        "full": Budget(steps=0, seeds=10_000),
    }

    def arms(self) -> Sequence[Arm]:
        """Nothing to train; `seeds` of the budget are draws of Z."""
        return []

    def conclude(self, runs: Mapping[str, Sequence[Path]], budget: Budget, out: Path) -> Conclusion:
        """Both panels, the numbers behind them, and what holds of the claim."""
        numbers = compute(seed=0, draws=budget.seeds)
        found = collect_findings(numbers)
        rows = [
            TableRow(
                READINGS[each.name],
                "yes",
                "yes" if each.holds else "no",
                budget.seeds,
                "PASS" if each.holds else "FAIL",
            )
            for each in found
        ]
        held = sum(each.holds for each in found)
        headline = f"The paper's robustness claim holds in {held} of {len(found)} readings of its Figure 1"
        files = [*draw(numbers, out), write_csv(numbers, out / "fig1.csv")]
        return Conclusion(headline, rows, write_verdicts(numbers), files)


def collect_findings(numbers: Fig1Numbers) -> list[Finding]:
    """What holds of the claim and what does not, in the order a reader should meet it."""
    return [
        _fold(numbers, "noise", "noise"),
        _fold(numbers, "outlier_row", "one outlying row"),
        _saturation(numbers),
        _range(numbers),
        _ranking(numbers),
        _shift(numbers),
    ]


def write_verdicts(numbers: Fig1Numbers) -> list[str]:
    """The findings as sentences, each led by whether it holds."""
    return [f"{'Holds' if found.holds else 'Does not hold'}: {found.sentence}" for found in collect_findings(numbers)]


def write_csv(numbers: Fig1Numbers, path: Path) -> Path:
    """The path, now holding one row per case, spoiler, measure and size; `low` and `high` enclose 95 % of the draws.

    `range_share` is empty for log_l2, which has no lower end.
    """
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for case in CASES:
            for spoiler in SPOILERS:
                for measure in MEASURES:
                    writer.writerows(_rows(numbers, case, spoiler, measure))
    return path


def _rows(numbers: Fig1Numbers, case: str, spoiler: str, measure: str) -> list[tuple[str | float, ...]]:
    value, fold = numbers.values[case, spoiler, measure], numbers.fold(case, spoiler, measure)
    columns = [*_summary(value), *_summary(fold), numbers.range_share(case, spoiler, measure).mean(axis=1)]
    rounded = [["" if np.isnan(entry) else f"{entry:.6g}" for entry in column] for column in columns]
    return [(case, spoiler, measure, size, *row) for size, *row in zip(numbers.sizes, *rounded, strict=True)]


def _summary(curves: Array) -> tuple[Array, Array, Array]:
    """Mean, and the percentiles that enclose 95 % of the draws, at each size."""
    low, high = np.percentile(curves, [2.5, 97.5], axis=1)
    return curves.mean(axis=1), low, high


def _change(numbers: Fig1Numbers, case: str, spoiler: str, measure: str) -> Array:
    """Mean relative change at each size, (sizes,): 0.24 means a quarter more."""
    return np.asarray(numbers.fold(case, spoiler, measure).mean(axis=1) - 1)


def _at(numbers: Fig1Numbers, curve: Array, size: float = QUOTED_SIZE) -> float:
    return float(curve[numbers.sizes.index(size)])


def _fold(numbers: Fig1Numbers, spoiler: str, words: str) -> Finding:
    ours = _change(numbers, "shared", spoiler, "nuclear")
    rivals = {name: _change(numbers, "shared", spoiler, name) for name in RIVALS}
    holds = all(bool((np.abs(ours[1:]) < np.abs(rival[1:])).all()) for rival in rivals.values())
    variance, log_l2 = (_at(numbers, rivals[name]) for name in RIVALS)
    return Finding(
        f"fold_{spoiler}",
        holds,
        f"relative to its own value, the nuclear norm changes less than variance and log-l2 under {words}. Around a "
        f"shared mean, size {QUOTED_SIZE}: nuclear {_at(numbers, ours):+.1%}, variance {variance:+.0%}, "
        f"log-l2 {log_l2:+.0%}.",
    )


def _saturation(numbers: Fig1Numbers) -> Finding:
    highest = (min(ROWS, DIMENSIONS) / max(ROWS, DIMENSIONS)) ** 0.5
    filled = float(numbers.values["independent", "noise", "nuclear"][0].mean()) / highest
    change = _at(numbers, _change(numbers, "independent", "noise", "nuclear"))
    variance = _at(numbers, _change(numbers, "independent", "noise", "variance"))
    holds = filled < SATURATED
    reason = "it had room to react and did not" if holds else "it had no room left to react, to noise or to novelty"
    return Finding(
        "not_saturated",
        holds,
        f"the calm of the nuclear norm on independent rows is robustness, not saturation. Noise of {QUOTED_SIZE} "
        f"changes it by {change:+.2%} there (variance {variance:+.1%}); before any noise it stood at {filled:.1%} of "
        f"its maximum: {reason}.",
    )


def _range(numbers: Fig1Numbers) -> Finding:
    def moved(measure: str) -> Array:
        share = numbers.range_share("shared", "noise", measure).mean(axis=1)
        return np.asarray(share - share[0])

    nuclear, variance, centered = moved("nuclear"), moved("variance"), moved("centered")
    further = [size for size, ahead in zip(numbers.sizes, nuclear > variance, strict=True) if ahead]
    where = f" It moves further than the variance up to size {max(further)}." if further else ""
    return Finding(
        "range",
        not further,
        f"measured in its own working range, from equal rows to independent ones, the nuclear norm moves less than the "
        f"variance. Around a shared mean, noise of {QUOTED_SIZE} moves nuclear by {_at(numbers, nuclear):.1%} of that "
        f"range, variance by {_at(numbers, variance):.1%}, the centered form by {_at(numbers, centered):.1%}.{where}",
    )


def _ranking(numbers: Fig1Numbers) -> Finding:
    def chances(features: str) -> str:
        names = ("nuclear", "variance", "centered")
        return ", ".join(f"{name} {_at(numbers, numbers.ranking[features, name], 0.5):.1%}" for name in names)

    def lead(features: str) -> float:
        return float((numbers.ranking[features, "nuclear"] - numbers.ranking[features, "variance"]).max())

    margin = 1 / numbers.draws**0.5  # twice the largest standard error of a share of this many draws, √(1/4n)
    return Finding(
        "ranking",
        any(lead(features) > margin for features in FEATURES),
        "under noise the nuclear norm tells a novel state (spread 0.2) from a known one (0.1) better than the variance "
        f"does. Chance of the right order under noise of 0.5: {chances('raw')}; with layer-normalized rows "
        f"{chances('layernorm')}.",
    )


def _shift(numbers: Fig1Numbers) -> Finding:
    nuclear = _change(numbers, "shared", "shift", "nuclear")
    variance = float(np.abs(_change(numbers, "shared", "shift", "variance")).max())
    holds = bool(np.abs(nuclear).max() <= variance)
    return Finding(
        "shift",
        holds,
        "one random value added to every entry of Z leaves the nuclear norm calmer than the variance. Up to size 1 it "
        f"changes the nuclear norm by {nuclear[-1]:+.1%}, the variance and all distances by {variance:.1%}.",
    )
