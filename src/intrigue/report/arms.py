"""Runs sorted into tasks (one environment with its options) and arms (what a run computes, seed apart).

arm     equal RunConfig.digest(without seed and bookkeeping), equal step budget, equal version of this package, and
        the same kind of origin (`report.origin`): from scratch, from a snapshot, with given episodes
counted the finished runs of an arm, one per seed and origin; when none is finished, the unfinished ones if all stand
        at the same step (the arm is then `so_far`). Only these are averaged; every other run is shown and named.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from intrigue.config.run import BOOKKEEPING, RunConfig
from intrigue.envs.maze import Maze, build_maze
from intrigue.envs.registry import split_id
from intrigue.report.labels import label_arms
from intrigue.report.origin import describe_origin
from intrigue.report.record import RunRecord

MAZE_FAMILIES = ("rooms", "noisy-tv")


@dataclass(frozen=True)
class ArmRuns:
    """Runs that differ in nothing but the seed, their own or that of their pre-training."""

    label: str
    config: RunConfig
    runs: tuple[RunRecord, ...]

    @property
    def finished(self) -> list[RunRecord]:
        """The runs that reached their last step."""
        return [run for run in self.runs if run.state == "finished"]

    @property
    def so_far(self) -> bool:
        """Whether the numbers are those of runs that are still under way."""
        return not self.finished

    @property
    def counted(self) -> list[RunRecord]:
        """The runs whose numbers are averaged."""
        if self.finished:
            return self.finished
        waiting = [run for run in self.runs if run.state in ("running", "unfinished")]
        return waiting if len({run.step for run in waiting}) == 1 else []

    @property
    def is_random(self) -> bool:
        """Whether it acts at random."""
        return self.config.agent_name == "random"

    @property
    def is_plain(self) -> bool:
        """Whether it learns without a bonus."""
        return self.config.reward_name == "none" and not self.is_random

    @property
    def is_curious(self) -> bool:
        """Whether it learns from a bonus."""
        return self.config.reward_name != "none" and not self.is_random

    @property
    def begun(self) -> str:
        """What its runs began with, in words; empty where nothing need be said."""
        return describe_origin([run.origin for run in self.runs], self.config.curiosity.idle)

    @property
    def is_simulated(self) -> bool:
        """Whether it was run for this report and is not on disk."""
        return all(run.path is None for run in self.runs)


@dataclass(frozen=True)
class Task:
    """One environment with its options, and the arms that were run on it: curious ones first, random last."""

    env_id: str
    arms: tuple[ArmRuns, ...]

    @property
    def maze(self) -> Maze | None:
        """The layout of a maze whose visits are known; None for every other environment."""
        options = self.arms[0].config.env_options
        if split_id(self.env_id)[0] not in MAZE_FAMILIES:
            return None
        rooms, size, seed = (int(options[name]) for name in ("rooms", "room_size", "layout_seed"))
        places = rooms**2 * size**2 + rooms**2 - 1  # by the formula first: a garbled size must not build a huge maze
        known = [run.visits for arm in self.arms for run in arm.runs if run.visits is not None]
        if not known or any(len(visits) != places for visits in known):
            return None
        return build_maze(rooms, size, seed)


def sort_tasks(records: Iterable[RunRecord]) -> list[Task]:
    """Every run whose settings are readable, in its task and arm; order does not depend on the order given."""
    tasks: dict[str, list[RunRecord]] = {}
    for record in sorted(records, key=_run_order):
        if record.config is not None:
            tasks.setdefault(task_key(record.config), []).append(record)
    return [make_task(runs) for _, runs in sorted(tasks.items())]


def make_task(runs: Sequence[RunRecord]) -> Task:
    """The task of these runs, which share one environment."""
    groups: dict[tuple[Any, ...], list[RunRecord]] = {}
    for run in _fill_unknown_origins(runs):
        groups.setdefault(_arm_key(run), []).append(run)
    unnamed = [ArmRuns("", _config(group[0]), tuple(_mark_duplicates(group))) for group in groups.values()]
    ordered = sorted(unnamed, key=lambda arm: (arm.is_random, arm.is_plain, _arm_key(arm.runs[0])[1:]))
    labels = label_arms([(arm.config, arm.runs[0].version, arm.is_simulated, arm.begun) for arm in ordered])
    named = [replace(arm, label=label) for arm, label in zip(ordered, labels, strict=True)]
    return Task(_config(runs[0]).env_id, tuple(named))


def task_key(config: RunConfig) -> str:
    """Equal for runs of the same environment with the same options."""
    return json.dumps([config.env_id, dict(config.env_options)], sort_keys=True)


def _arm_key(run: RunRecord) -> tuple[Any, ...]:
    config = _config(run)
    digest = config.digest(without=(*BOOKKEEPING, "seed"))
    origin = ("", 0, "") if run.origin is None else run.origin.key
    return (run.path is None, config.reward_name, config.agent_name, config.run.steps, run.version, digest, *origin)


def _fill_unknown_origins(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """The runs; a pre-training that is not found is taken for one of the only kind that is, where there is just one."""
    kinds: dict[tuple[Any, ...], set[str]] = {}
    for run in runs:
        if run.origin is not None and run.origin.settings:
            kinds.setdefault(_arm_key(run)[:-1], set()).add(run.origin.settings)
    settled = []
    for run in runs:
        known = kinds.get(_arm_key(run)[:-1], set())
        if run.origin is not None and len(known) == 1:
            run = replace(run, origin=replace(run.origin, settings=min(known)))
        settled.append(run)
    return settled


def _mark_duplicates(group: Sequence[RunRecord]) -> list[RunRecord]:
    """The runs with every repeated one marked: the same settings, origin and seed twice are one result, not two."""
    kept: dict[tuple[int | None, str], RunRecord] = {}
    marked = []
    for run in sorted(group, key=lambda each: (each.state != "finished", each.state == "damaged", _run_order(each))):
        same = (run.seed, "" if run.origin is None else run.origin.digest)
        first = kept.setdefault(same, run) if run.state != "damaged" else run
        if first is run:
            marked.append(run)
        else:
            marked.append(replace(run, state="duplicate", reason=f"same settings and seed as {first.path}"))
    return sorted(marked, key=_run_order)


def _run_order(run: RunRecord) -> tuple[int, str]:
    return (-1 if run.seed is None else run.seed, str(run.path))


def _config(run: RunRecord) -> RunConfig:
    assert run.config is not None
    return run.config
