"""Which form of the nuclear-norm bonus explores a maze best? Form × features × source on `rooms`. Ours.

The paper gives one formula and leaves the encoder and the rows of Z open. Every combination is run with the
quickstart's learner on the bonus alone, with RND, no reward and a random policy as references. The table is reported as
found; the one verdict is on the lead that our recommendation rests on: the centered kNN form covers more than the
paper's ratio.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, final

from intrigue.presets import preset_layer
from intrigue.scores.stats import mean
from intrigue.studies.base import Arm, Budget, Conclusion, Study, TableRow
from intrigue.studies.common.verdicts import coverage, goal_step
from intrigue.studies.quickstart import format_shares, judge_difference, make_control_arms
from intrigue.studies.registry import register_study

FORMS, FEATURES, SOURCES = ("ratio", "floor", "centered"), ("layernorm", "raw"), ("ensemble", "knn")


@register_study("forms")
@final
class Forms(Study):
    """Coverage of the maze by every form."""

    title: ClassVar[str] = "Forms of the nuclear-norm bonus in a maze"
    budgets: ClassVar[Mapping[str, Budget]] = {
        "smoke": Budget(steps=20_000, seeds=1),
        "hour": Budget(steps=200_000, seeds=3),
        "full": Budget(steps=200_000, seeds=20),
    }

    def arms(self) -> Sequence[Arm]:
        """Every combination, and the three references."""
        preset = preset_layer("quickstart")
        bare = {key: value for key, value in preset.items() if not key.startswith("reward")}
        size = {"reward.feature_dim": preset["reward.feature_dim"], "reward.hidden": preset["reward.hidden"]}
        arms = [
            Arm(label(form, features, source), {**preset, "reward": "nnm", "reward.form": form,
                "reward.features": features, "reward.source": source})
            for source in SOURCES for form in FORMS for features in FEATURES
        ]  # fmt: skip
        return [
            *arms,
            Arm("rnd", {**bare, **size, "reward": "rnd"}),
            *make_control_arms(preset),
        ]

    def conclude(self, runs: Mapping[str, Sequence[Path]], budget: Budget, out: Path) -> Conclusion:
        """The table, best first."""
        shares = {arm: [coverage(path) for path in paths] for arm, paths in runs.items()}
        goals = {arm: sum(goal_step(path) is not None for path in paths) for arm, paths in runs.items()}
        ranked = sorted(shares, key=lambda arm: -mean(shares[arm]))
        with (out / "coverage.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["arm", "seed", "steps", "coverage"])
            writer.writerows(
                [arm, seed, budget.steps, f"{share:.6f}"] for arm in ranked for seed, share in enumerate(shares[arm])
            )
        ours, paper = label("centered", "raw", "knn"), label("ratio", "layernorm", "ensemble")
        verdict = judge_difference(shares[ours], shares[paper])
        rows = [
            TableRow(
                f"coverage, {arm}",
                "-",
                f"{format_shares(shares[arm])}, goal found in {goals[arm]}",
                len(shares[arm]),
                verdict if arm == ours else None,
            )
            for arm in ranked
        ]
        best, theirs = mean(shares[ranked[0]]), mean(shares[paper])
        headline = f"Most of the maze: {ranked[0]} with {best:.1%}; the paper's form {theirs:.1%}"
        words = [
            f"The verdict of {ours!r} says whether it covers more than the paper's {paper!r}; "
            "the other lines are measurements."
        ]
        return Conclusion(headline, rows, words, files=[out / "coverage.csv"])


def label(form: str, features: str, source: str) -> str:
    """An arm's name."""
    return f"{form}, {features}, {source}"
