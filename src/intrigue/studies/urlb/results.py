"""Scores of many fine-tunings, all read at the same frame: what the tables of URLB are made from.

Only like is compared with like. In each domain only runs from its longest pre-training count (and those from scratch).
None is read after the 100k frames at which URLB's scores are: one that went on counts as it was there. The rest is as
in `common.results`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from intrigue.errors import ConfigError
from intrigue.scores.normalized import EXPERTS, share_of_expert
from intrigue.scores.urlb_published import TASKS_12, domain_of
from intrigue.studies.common.arm_names import ArmName
from intrigue.studies.common.results import SMALL, Benchmark, Results, compare_runs, full_size, write_table
from intrigue.studies.common.run_records import LearningCurve
from intrigue.studies.urlb.methods import FINETUNE_FRAMES, PRETRAIN_FRAMES, environments_of, method_of

URLB = Benchmark(TASKS_12, share_of_expert, "frame", "which was not evaluated before")
SCORE_HEADER = (
    "task", "preset", "changes", "seed", "snapshot_frames", "finetune_frames", "score", "normalized", "environments",
)  # fmt: skip


def compare_finetunings(runs: Sequence[LearningCurve]) -> Results:
    """The scores of these runs. Raises ConfigError when there is none."""
    if not runs:
        raise ConfigError("no run has a score. Accepted: fine-tunings with at least one evaluation.")
    notes = [
        f"Left out: {run}, which was first evaluated at frame {run.steps[0]:,.0f}, after {FINETUNE_FRAMES:,}."
        for run in runs
        if run.steps[0] > FINETUNE_FRAMES
    ]
    runs = [run.until(FINETUNE_FRAMES) for run in runs if run.steps[0] <= FINETUNE_FRAMES]
    if not runs:
        raise ConfigError(f"no run was evaluated within its first {FINETUNE_FRAMES:,} frames, where scores are read.")
    snapshots: dict[str, int] = {}
    for run in runs:
        if run.snapshot:
            domain = domain_of(run.task)
            snapshots[domain] = max(snapshots.get(domain, 0), run.snapshot)
    usual = [run for run in runs if run.snapshot in (0, snapshots.get(domain_of(run.task), 0))]
    notes += _name_shorter_pretrainings([run for run in runs if run not in usual], snapshots)
    results = compare_runs(usual, URLB, _full_size_method)
    return replace(results, snapshots=snapshots, notes=[*notes, *results.notes])


def is_nominal(results: Results, tasks: Sequence[str]) -> bool:
    """Whether runs on these tasks were trained as long as the paper's were."""
    trained = min((results.snapshots.get(domain_of(task), 0) for task in tasks), default=0)
    return trained >= PRETRAIN_FRAMES and results.step >= FINETUNE_FRAMES


def write_finetuning_scores(results: Results, path: Path) -> Path:
    """The path, now holding one row per run: its score and its share of the expert's."""
    rows = []
    for run in sorted(results.runs, key=lambda each: (TASKS_12.index(each.task), each.name, each.seed)):
        score = run.at(results.step)
        size = SMALL if results.small and not run.name.preset.endswith(SMALL) else ""
        fixed = [run.task, run.name.preset + size, run.name.changes, run.seed, run.snapshot, results.step]
        shown = [f"{score:.6g}", f"{score / EXPERTS[run.task]:.6g}"]
        rows.append([*fixed, *shown, environments_of(run.name)])
    return write_table(path, SCORE_HEADER, rows)


def _full_size_method(name: ArmName) -> ArmName:
    """The method that stands for its laptop size; with other settings changed it is no method, and keeps its name."""
    full = full_size(name)
    return name if method_of(full) is None else full


def _name_shorter_pretrainings(runs: Sequence[LearningCurve], snapshots: Mapping[str, int]) -> list[str]:
    counts = Counter((str(run.name), domain_of(run.task), run.snapshot) for run in runs)
    return [
        f"Left out: {count} run{'s' if count > 1 else ''} of {name} on {domain}, fine-tuned from {mark:,} frames: the "
        f"table is of {snapshots[domain]:,}."
        for (name, domain, mark), count in sorted(counts.items())
    ]
