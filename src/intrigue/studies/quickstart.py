"""The maze of `make run`: does nuclear-norm curiosity explore it, against no reward and a random policy? Ours.

Three arms on `rooms`, trained on the bonus alone. Coverage is the share of the maze's cells visited at least once,
counted exactly. Verdicts come from bootstrap intervals over seeds: PASS when the interval lies wholly on the claim's
side, FAIL when it lies wholly on the other, SHORT in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np

from intrigue.presets import preset_layer
from intrigue.report.page import compose_report, save_report
from intrigue.scores.stats import bootstrap_interval, difference_interval, mean
from intrigue.studies.base import Arm, Budget, Conclusion, Study, TableRow, Verdict
from intrigue.studies.common.verdicts import coverage
from intrigue.studies.registry import register_study

WANTED_RATIO = 2.0  # ours: a bonus that does not at least double a random policy's reach is not worth its cost here
NNM, NONE, RANDOM = "nnmc (knn)", "none", "random policy"


@register_study("quickstart")
@final
class Quickstart(Study):
    """Coverage of the maze under curiosity, under no reward, and at random."""

    title: ClassVar[str] = "Curiosity in a maze"
    budgets: ClassVar[Mapping[str, Budget]] = {
        "smoke": Budget(steps=200_000, seeds=5),
        "hour": Budget(steps=200_000, seeds=30),
        "full": Budget(steps=1_000_000, seeds=30),
    }

    def arms(self) -> Sequence[Arm]:
        """The preset, the same learner without a bonus, and uniformly random actions."""
        preset = preset_layer("quickstart")
        return [Arm(NNM, preset), *make_control_arms(preset)]

    def conclude(self, runs: Mapping[str, Sequence[Path]], budget: Budget, out: Path) -> Conclusion:
        """How much of the maze each arm saw, and whether curiosity doubled chance and beat no reward."""
        shares = {label: [coverage(path) for path in paths] for label, paths in runs.items()}
        chance = [WANTED_RATIO * share for share in shares[RANDOM]]
        ratio = mean(shares[NNM]) / mean(shares[RANDOM])
        rows = [
            TableRow(f"coverage, {label}", "-", format_shares(values), len(values)) for label, values in shares.items()
        ]
        rows += [
            TableRow(
                f"coverage of NNM over random, at least {WANTED_RATIO:g}", "-", f"{ratio:.2f}", budget.seeds,
                judge_difference(shares[NNM], chance),
            ),
            TableRow(
                "coverage of NNM minus no reward, above 0", "-", f"{mean(shares[NNM]) - mean(shares[NONE]):+.1%}",
                budget.seeds, judge_difference(shares[NNM], shares[NONE]),
            ),
        ]  # fmt: skip
        report = compose_report(
            [path for paths in runs.values() for path in paths], out / "report.html", title=self.title
        )
        page = save_report(report)
        return Conclusion(report.headlines[0], rows, files=[page])


def make_control_arms(preset: Mapping[str, Any]) -> list[Arm]:
    """The preset's learner without a bonus, and uniformly random actions."""
    bare = {key: value for key, value in preset.items() if not key.startswith("reward")}
    aimless = {key: value for key, value in bare.items() if not key.startswith("agent")}
    return [Arm(NONE, {**bare, "reward": "none"}), Arm(RANDOM, {**aimless, "reward": "none", "agent": "random"})]


def judge_difference(ours: Sequence[float], theirs: Sequence[float]) -> Verdict:
    """Whether ours is larger: the verdict of the interval of the difference of means."""
    interval = difference_interval(ours, theirs, np.random.default_rng(0))
    if interval is None or interval[0] <= 0 <= interval[1]:
        return "SHORT"
    return "PASS" if interval[0] > 0 else "FAIL"


def format_shares(values: Sequence[float]) -> str:
    """A mean share with its interval."""
    interval = bootstrap_interval(values, np.random.default_rng(0))
    around = f" [{interval[0]:.1%}, {interval[1]:.1%}]" if interval is not None else ""
    return f"{mean(values):.1%}{around}"
