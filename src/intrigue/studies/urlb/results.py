"""Scores of many fine-tunings, all read at the same frame: what the tables of URLB are made from.

Compared is like with like. In each domain only runs from its longest pre-training count (and those from scratch); all
are read at the last evaluation of the shortest, and one that did not reach half of the longest is left out instead.
None is read after the 100k frames at which URLB's scores are: one that went on counts as it was there.
Every run left out is named. `-small` sizes are only compared among themselves.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from intrigue.errors import ConfigError
from intrigue.scores.normalized import EXPERTS
from intrigue.scores.stats import Scores
from intrigue.scores.urlb_published import TASKS_12, domain_of
from intrigue.studies.atari.results import LEFT_BEHIND, SMALL
from intrigue.studies.common.arm_names import Name
from intrigue.studies.urlb.methods import FINETUNE_FRAMES, PRETRAIN_FRAMES, environments_of, method_of
from intrigue.studies.urlb.runs import Tuning

SCORE_HEADER = (
    "task", "preset", "changes", "seed", "snapshot_frames", "finetune_frames", "score", "normalized", "environments",
)  # fmt: skip


@dataclass(frozen=True)
class TunedResults:
    """Scores by name and task, one per seed; the runs they come from, and notes on those that do not count."""

    frames: int
    snapshots: Mapping[str, int]  # frames of pre-training by domain; none where nothing was pre-trained
    small: bool
    scores: Mapping[Name, Mapping[str, Sequence[float]]]
    runs: Sequence[Tuning]
    notes: Sequence[str]

    def nominal(self, tasks: Sequence[str]) -> bool:
        """Whether runs on these tasks were trained as long as the paper's were."""
        trained = min((self.snapshots.get(domain_of(task), 0) for task in tasks), default=0)
        return trained >= PRETRAIN_FRAMES and self.frames >= FINETUNE_FRAMES

    def tasks(self, *names: Name) -> list[str]:
        """The tasks that all of these have, in the paper's order."""
        return [task for task in TASKS_12 if names and all(self.raw(name, task) for name in names)]

    def raw(self, name: Name, task: str) -> list[float]:
        """Scores in one task; none where it was not run."""
        return list(self.scores.get(name, {}).get(task, ()))

    def seeds(self, name: Name, tasks: Sequence[str]) -> int:
        """How many seeds every one of these tasks has."""
        return min((len(self.raw(name, task)) for task in tasks), default=0)

    def shares(self, name: Name, tasks: Sequence[str]) -> Scores:
        """Shares of the experts' scores, (seeds, tasks); seeds beyond what every task has are left out."""
        seeds = self.seeds(name, tasks)
        columns = [[score / EXPERTS[task] for score in self.raw(name, task)[:seeds]] for task in tasks]
        return np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)


def tuned_results(runs: Sequence[Tuning]) -> TunedResults:
    """The scores of these runs. Raises ConfigError when there is none."""
    if not runs:
        raise ConfigError("no run has a score. Accepted: fine-tunings with at least one evaluation.")
    notes = [
        f"Left out: {run}, which was first evaluated at frame {run.frames[0]:,.0f}, after {FINETUNE_FRAMES:,}."
        for run in runs
        if run.frames[0] > FINETUNE_FRAMES
    ]
    runs = [run.until(FINETUNE_FRAMES) for run in runs if run.frames[0] <= FINETUNE_FRAMES]
    if not runs:
        raise ConfigError(f"no run was evaluated within its first {FINETUNE_FRAMES:,} frames, where scores are read.")
    small = all(run.name.preset.endswith(SMALL) for run in runs)
    snapshots: dict[str, int] = {}
    for run in runs:
        if run.snapshot:
            domain = domain_of(run.task)
            snapshots[domain] = max(snapshots.get(domain, 0), run.snapshot)
    usual = [run for run in runs if run.snapshot in (0, snapshots.get(domain_of(run.task), 0))]
    notes += _shorter_pretrainings([run for run in runs if run not in usual], snapshots)
    longest = max(run.last for run in usual)
    kept = [run for run in usual if run.last >= LEFT_BEHIND * longest]
    notes += [
        f"Left out: {run}, which stopped at frame {run.last:,} of {longest:,}." for run in usual if run not in kept
    ]
    frames = min(run.last for run in kept)
    scores: dict[Name, dict[str, list[float]]] = {}
    counted = []
    for run in sorted(kept, key=lambda each: each.seed):
        score = run.at(frames)
        if np.isnan(score):
            notes.append(f"Left out: {run}, which was not evaluated before frame {frames:,}.")
            continue
        named = replace(run, name=_method_name(run.name) if small else run.name)
        scores.setdefault(named.name, {}).setdefault(run.task, []).append(score)
        counted.append(named)
    return TunedResults(frames, snapshots, small, scores, counted, notes)


def _method_name(name: Name) -> Name:
    """The method that stands for its laptop size; with other settings changed it is no method, and keeps its name."""
    full = Name(name.preset.removesuffix(SMALL), name.changes)
    return name if method_of(full) is None else full


def _shorter_pretrainings(runs: Sequence[Tuning], snapshots: Mapping[str, int]) -> list[str]:
    found = Counter((str(run.name), domain_of(run.task), run.snapshot) for run in runs)
    return [
        f"Left out: {count} run{'s' if count > 1 else ''} of {name} on {domain}, fine-tuned from {mark:,} frames: the "
        f"table is of {snapshots[domain]:,}."
        for (name, domain, mark), count in sorted(found.items())
    ]


def write_scores(results: TunedResults, path: Path) -> Path:
    """One row per run: its score and its share of the expert's."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(SCORE_HEADER)
        for run in sorted(results.runs, key=lambda each: (TASKS_12.index(each.task), each.name, each.seed)):
            score = run.at(results.frames)
            size = SMALL if results.small and not run.name.preset.endswith(SMALL) else ""
            fixed = [run.task, run.name.preset + size, run.name.changes, run.seed, run.snapshot, results.frames]
            shown = [f"{score:.6g}", f"{score / EXPERTS[run.task]:.6g}"]
            writer.writerow([*fixed, *shown, environments_of(run.name)])
    return path
