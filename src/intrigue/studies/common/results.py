"""Scores of many runs at one common step: what tables and figures are made from.

Runs that were trained side by side rarely end together. They are compared at the last step of the shortest one; a run
that did not reach half of the longest is left out instead, and so is one without a score by then. Every run left out is
named. `-small` sizes are only compared among themselves.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from intrigue.errors import ConfigError
from intrigue.scores import Scores
from intrigue.studies.common.arm_names import ArmName
from intrigue.studies.common.run_records import LearningCurve

SMALL = "-small"
LEFT_BEHIND = 0.5  # ours: share of the longest run's steps below which a run is left out rather than waited for


@dataclass(frozen=True)
class Benchmark:
    """Games or tasks in the order of tables, and how their scores are made comparable."""

    tasks: Sequence[str]
    normalise: Callable[[str, float], float]  # task, score
    unit: str  # of steps, in notes
    unscored: str  # why a run has no score by a step, in notes


@dataclass(frozen=True)
class Results:
    """Scores by name and task, one per seed; the runs they come from, and notes on those that do not count."""

    benchmark: Benchmark
    step: int
    small: bool
    scores: Mapping[ArmName, Mapping[str, Sequence[float]]]
    runs: Sequence[LearningCurve]
    notes: Sequence[str]
    snapshots: Mapping[str, int] = field(default_factory=dict)  # frames of pre-training by domain; control only

    def tasks(self, *names: ArmName) -> list[str]:
        """The tasks that all of these have, in the order of tables."""
        return [task for task in self.benchmark.tasks if names and all(self.raw(name, task) for name in names)]

    def raw(self, name: ArmName, task: str) -> list[float]:
        """Raw scores in one task; none where it was not run."""
        return list(self.scores.get(name, {}).get(task, ()))

    def seeds(self, name: ArmName, tasks: Sequence[str]) -> int:
        """How many seeds every one of these tasks has."""
        return min((len(self.raw(name, task)) for task in tasks), default=0)

    def normalised(self, name: ArmName, tasks: Sequence[str]) -> Scores:
        """Normalised scores, (seeds, tasks); seeds beyond what every task has are left out."""
        seeds = self.seeds(name, tasks)
        normalise = self.benchmark.normalise
        columns = [[normalise(task, score) for score in self.raw(name, task)[:seeds]] for task in tasks]
        return np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)

    def runs_of(self, name: ArmName, task: str) -> list[LearningCurve]:
        """The runs of one method in one task."""
        return [run for run in self.runs if (run.name, run.task) == (name, task)]

    @property
    def seeds_text(self) -> str:
        """How many seeds a task has, as a number or a range."""
        seeds = {len(scores) for column in self.scores.values() for scores in column.values()}
        return f"{min(seeds)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"


def full_size(name: ArmName) -> ArmName:
    """The name without the mark of laptop sizes."""
    return ArmName(name.preset.removesuffix(SMALL), name.changes)


def compare_runs(
    runs: Sequence[LearningCurve], benchmark: Benchmark, rename_small: Callable[[ArmName], ArmName] = full_size
) -> Results:
    """The scores of these runs at their common step. Raises ConfigError when there is none.

    `rename_small` names the method that a laptop-sized run stands for, where all runs are laptop-sized.
    """
    unit = benchmark.unit
    small = all(run.name.preset.endswith(SMALL) for run in runs)
    longest = max((run.last_step for run in runs), default=0)
    kept = [run for run in runs if run.last_step >= LEFT_BEHIND * longest]
    step = min((run.last_step for run in kept), default=0)
    notes = [
        f"Left out: {run}, which stopped at {unit} {run.last_step:,} of {longest:,}." for run in runs if run not in kept
    ]
    scores: dict[ArmName, dict[str, list[float]]] = {}
    counted = []
    for run in sorted(kept, key=lambda each: each.seed):
        score = run.at(step)
        if math.isnan(score):
            notes.append(f"Left out: {run}, {benchmark.unscored} {unit} {step:,}.")
            continue
        run = replace(run, name=rename_small(run.name)) if small else run
        scores.setdefault(run.name, {}).setdefault(run.task, []).append(score)
        counted.append(run)
    if not counted:
        detail = " ".join([*notes, ""])
        raise ConfigError(f"no run has a score. {detail}Accepted: runs with at least one finished episode.")
    return Results(benchmark, step, small, scores, counted, notes)


def write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    """The path, now holding a CSV file of these rows."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])
    return path
