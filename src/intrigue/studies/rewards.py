"""Every bonus in the same maze, and in the same maze with a noisy screen: who explores, who watches television? Ours.

    rooms      coverage: share of the cells entered at least once, after training on the bonus alone
    noisy-tv   the same, and the share of steps in the last quarter of training spent switching the screen, which shows
               random bits and nothing else; a random policy switches in one step of five

All arms have the quickstart's learner, networks of the same width and their own default settings. Nothing is claimed in
advance about the order: the table is what was found. The one verdict is on the usual expectation that bonuses for
prediction error (icm) are drawn to the screen more than no bonus is.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, final

from intrigue.presets import preset_layer
from intrigue.rewards.registry import REWARDS
from intrigue.scores.stats import mean
from intrigue.studies.base import Arm, Budget, Conclusion, Study, TableRow
from intrigue.studies.common.verdicts import coverage, late_mean
from intrigue.studies.quickstart import RANDOM, format_shares, judge_difference, make_control_arms
from intrigue.studies.registry import register_study

TASKS = ("rooms", "noisy-tv")
# Not bonuses of their own: the controls, parts of NGU, and expressions.
LEFT_OUT = ("none", "random", "episodic", "rnd_alpha", "mix")
SIZES = ("feature_dim", "hidden")


@register_study("rewards")
@final
class Rewards(Study):
    """Coverage and screen time under every registered bonus."""

    title: ClassVar[str] = "Every bonus in a maze, with and without a noisy screen"
    budgets: ClassVar[Mapping[str, Budget]] = {
        "smoke": Budget(steps=8_192, seeds=1),
        "hour": Budget(steps=100_352, seeds=2),
        "full": Budget(steps=401_408, seeds=10),
    }

    def arms(self) -> Sequence[Arm]:
        """Each bonus on both mazes, and the two references."""
        preset = preset_layer("quickstart")
        arms = []
        for task in TASKS:
            layer = {**preset, "env": task}
            arms += [
                Arm(f"{task}: {name}", reward_layer(layer, name)) for name in REWARDS.names() if name not in LEFT_OUT
            ]
            arms += [Arm(f"{task}: {arm.label}", arm.layer) for arm in make_control_arms(layer)]
        return arms

    def conclude(self, runs: Mapping[str, Sequence[Path]], budget: Budget, out: Path) -> Conclusion:
        """The table of each maze, best explorers first."""
        shares = {arm: [coverage(path) for path in paths] for arm, paths in runs.items()}
        bait = {
            arm: [late_mean(path, "charts/bait_share", 0.25) for path in paths]
            for arm, paths in runs.items()
            if arm.startswith("noisy-tv")
        }
        ranked = sorted(shares, key=lambda arm: (TASKS.index(arm.partition(":")[0]), -mean(shares[arm])))
        table = out / "rewards.csv"
        with table.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["task", "reward", "seed", "steps", "coverage", "bait_share"])
            for arm in ranked:
                task, _, name = arm.partition(": ")
                for seed, share in enumerate(shares[arm]):
                    late = f"{bait[arm][seed]:.6f}" if arm in bait else ""
                    writer.writerow([task, name, seed, budget.steps, f"{share:.6f}", late])
        rows = [TableRow(f"{arm}, coverage", "-", format_shares(shares[arm]), len(shares[arm])) for arm in ranked]
        rows += [
            TableRow(f"{arm}, share of steps at the screen", "-", format_shares(bait[arm]), len(bait[arm]))
            for arm in sorted(bait, key=lambda arm: -mean(bait[arm]))
        ]
        icm, none = bait["noisy-tv: icm"], bait["noisy-tv: none"]
        more = f"{mean(icm) - mean(none):+.1%}"
        rows.append(TableRow("screen: icm above no bonus", "-", more, len(icm), judge_difference(icm, none)))
        calm, baited = (next(arm for arm in ranked if arm.startswith(task)) for task in TASKS)
        most = max(bait, key=lambda arm: mean(bait[arm]))
        chance = f"{mean(bait[f'noisy-tv: {RANDOM}']):.1%}"
        headline = (
            f"Most of the maze: {_describe_arm(calm, shares)}; with a screen in it: {_describe_arm(baited, shares)}; "
            f"most drawn to the screen: {_describe_arm(most, bait)} of its steps, random policy {chance}"
        )
        return Conclusion(headline, rows, files=[table])


def reward_layer(layer: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The layer under another bonus: its own default settings, with the layer's network widths where it has them."""
    known = REWARDS.declaration(name).hints()
    bare = {key: value for key, value in layer.items() if not key.startswith("reward")}
    sizes = {f"reward.{key}": layer[f"reward.{key}"] for key in SIZES if key in known}
    # The recommended form keeps what the preset tuned for it; every other bonus has only its own defaults.
    return dict(layer) if name == layer["reward"] else {**bare, **sizes, "reward": name}


def _describe_arm(arm: str, values: Mapping[str, Sequence[float]]) -> str:
    return f"{arm.partition(': ')[2]} with {mean(values[arm]):.1%}"
