"""Figure 6 of the paper: learning curves of fine-tuning in six of the twelve tasks; Disagreement, APT and NNM.

The text says that NNM converges about as fast as APT, both faster than Disagreement, and to a significantly better
result than APT. The picture itself is not in the preprint's source, and which six tasks it shows is not said: two of
each domain are ours.

    ahead        the mean score over all evaluations up to 100k frames, as a share of the expert's: how high the curve
                 lies all the way
    comparable   the ratio of those for NNM and APT: PASS if its interval lies within [0.8, 1.25] (ours), FAIL wholly
                 outside, otherwise SHORT
    result       the score after 100k frames
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from intrigue.scores import Interval, Scores, bootstrap_interval, difference_interval, joint_interval
from intrigue.scores.normalized import EXPERTS
from intrigue.studies.base import SCORE_COLUMNS, Budget, Conclusion, TableRow, Verdict
from intrigue.studies.common.results import Results
from intrigue.studies.common.study import budgets_of
from intrigue.studies.common.verdicts import format_interval, make_order_row, mean_difference
from intrigue.studies.registry import register_study
from intrigue.studies.urlb.methods import (
    FINETUNE_FRAMES,
    METHODS,
    OURS,
    PRETRAIN_FRAMES,
    RUN_BY_PAPER,
    SCRATCH,
    method_of,
    multi_env_variants,
)
from intrigue.studies.urlb.plots import draw_finetunings
from intrigue.studies.urlb.study import UrlbLevel, UrlbStudy
from intrigue.studies.urlb.table import describe_missing, describe_protocol, format_returns

# Ours: two of each domain; in all of them the paper prints NNM above APT.
TASKS = (
    "walker_flip", "walker_run", "quadruped_jump", "quadruped_walk", "jaco_reach_bottom_left", "jaco_reach_top_right",
)  # fmt: skip
SHOWN = (SCRATCH, *RUN_BY_PAPER)
COMPARABLE = (0.8, 1.25)  # ours
LEVELS = {
    "smoke": UrlbLevel(("walker_run",), RUN_BY_PAPER, 2_000, 1_500, 1),
    "hour": UrlbLevel(TASKS[:4], RUN_BY_PAPER, 500_000, FINETUNE_FRAMES, 1, jobs=2),  # 6 pre-trainings, 12 fine-tunings
    "full": UrlbLevel(TASKS, SHOWN, PRETRAIN_FRAMES, FINETUNE_FRAMES, 10, jobs=4),
}


@register_study("fig6")
@final
class Figure6(UrlbStudy):
    """Six tasks, three methods, all the way through fine-tuning."""

    title: ClassVar[str] = "Figure 6: fine-tuning after pre-training"
    levels: ClassVar[Mapping[str, UrlbLevel]] = LEVELS
    budgets: ClassVar[Mapping[str, Budget]] = budgets_of(LEVELS)

    def judge(self, results: Results) -> Conclusion:
        """The text's claims over the six tasks, then task by task."""
        names = [METHODS[label].name for label in RUN_BY_PAPER]
        tasks = [task for task in results.tasks(*names) if task in TASKS]
        rows = _together(results, tasks) if tasks else []
        rows += [row for task in TASKS for row in _alone(results, task)]
        words = [describe_protocol(results), *describe_missing(results, TASKS, RUN_BY_PAPER)]
        words.append(
            "The paper's picture is not in its source and its six tasks are not named; these are ours, and only what "
            "its text says is judged. 'All the way' is the mean over all evaluations; comparable is a ratio between "
            f"{COMPARABLE[0]} and {COMPARABLE[1]}."
        )
        text = ", ".join(
            f"{label} {results.normalised(METHODS[label].name, tasks).mean():.3f}" for label in RUN_BY_PAPER if tasks
        )
        headline = (
            f"Mean share of the expert's score on {len(tasks)} of {len(TASKS)} tasks: {text}"
            if tasks
            else f"{', '.join(RUN_BY_PAPER)} were not all run on any of the six tasks: nothing to compare yet"
        )
        return Conclusion(headline, rows, words, columns=SCORE_COLUMNS)

    def draw(self, results: Results, out: Path) -> list[Path]:
        """The curves."""
        return draw_finetunings(results, TASKS, SHOWN, out, self.title)


def area_under_curves(results: Results, label: str, tasks: Sequence[str]) -> Scores:
    """Mean over all evaluations of score/expert, (seeds, tasks): the area under the curve."""
    name = METHODS[label].name
    seeds = results.seeds(name, tasks)
    columns = []
    for task in tasks:
        runs = results.runs_of(name, task)[:seeds]
        columns.append([run.until(results.step).returns.mean() / EXPERTS[task] for run in runs])
    return np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)


def judge_ratio(interval: Interval | None) -> Verdict:
    """Whether a ratio is near 1, by the rule above."""
    if interval is None:
        return "SHORT"
    if COMPARABLE[0] <= interval[0] and interval[1] <= COMPARABLE[1]:
        return "PASS"
    return "FAIL" if interval[1] < COMPARABLE[0] or interval[0] > COMPARABLE[1] else "SHORT"


def _together(results: Results, tasks: Sequence[str]) -> list[TableRow]:
    """Claims about all six tasks; on fewer they stay open."""
    whole = list(tasks) == list(TASKS)
    area = {label: area_under_curves(results, label, tasks) for label in RUN_BY_PAPER}
    rows = []
    for label in RUN_BY_PAPER:
        interval = bootstrap_interval(area[label])
        text = f"{area[label].mean():.3f}"
        rows.append(
            TableRow(f"all the way, {label}", "-", text, len(area[label]), interval=format_interval(interval, 3))
        )
    for label in (OURS, "APT"):
        interval = difference_interval(area[label], area["Disagreement"])
        text = f"{area[label].mean():.3f} to {area['Disagreement'].mean():.3f}"
        quantity, parts = f"all the way: {label} ahead of Disagreement", (area[label], area["Disagreement"])
        rows.append(make_order_row(quantity, ("ahead", text), parts, interval, 3, complete=whole))
    seeds = min(len(area[OURS]), len(area["APT"]))
    ratio = joint_interval([area[OURS], area["APT"]], lambda mine, theirs: float(mine.mean() / theirs.mean()))
    text = f"{area[OURS].mean() / area['APT'].mean():.2f}×"
    speed = judge_ratio(ratio) if whole else "SHORT"
    rows.append(TableRow("all the way: NNM to APT", "comparable", text, seeds, speed, interval=format_interval(ratio)))
    ours, theirs = (results.normalised(METHODS[label].name, tasks) for label in (OURS, "APT"))
    interval = difference_interval(ours, theirs)
    text = f"{ours.mean():.3f} to {theirs.mean():.3f}"
    cells = ("significantly", text)
    return [*rows, make_order_row("result: NNM above APT", cells, (ours, theirs), interval, 3, complete=whole)]


def _alone(results: Results, task: str) -> list[TableRow]:
    """Each method's score in a task, and NNM against APT there."""
    shown = multi_env_variants(SHOWN, results.scores)
    raw = {label: results.raw(name, task) for label, name in shown.items()}
    rows = []
    for label, found in raw.items():
        method = method_of(shown[label])
        if found and method is not None:
            rows.append(
                TableRow(f"{task}: {label}", str(method.paper_column.get(task, "-")), format_returns(found), len(found))
            )
    if raw[OURS] and raw["APT"]:
        interval = mean_difference(raw[OURS], raw["APT"])
        printed = [METHODS[label].paper_column[task].score for label in (OURS, "APT")]
        text = f"{format_returns(raw[OURS])} to {format_returns(raw['APT'])}"
        cells = (f"{printed[0]:g} to {printed[1]:g}", text)
        rows.append(make_order_row(f"{task}: NNM above APT", cells, (raw[OURS], raw["APT"]), interval, 0))
    return rows
