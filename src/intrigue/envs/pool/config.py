"""How many environments, in how many processes and groups, and how long to wait for them."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from typing import Annotated

from intrigue.errors import Problem
from intrigue.fields import Limits, PositiveFloat, PositiveInt


@dataclass(frozen=True)
class PoolConfig:
    """Settings of the worker pool."""

    num_envs: PositiveInt = 16  # ours: enough to fill a minibatch on two cores
    workers: Annotated[int, Limits(low=-1)] = 1  # processes; 0 steps in this one, without a time limit; -1 per core
    groups: Annotated[int, Limits(low=1, high=64)] = 1  # ours: sets stepped in turn, one while the learner is busy
    pin: bool = False  # ours: keep every worker on a core of its own, where there are as many cores as workers
    step_timeout_seconds: PositiveFloat = 60.0  # RLlib's figure for a stuck sampler; also for reset, snapshot, restore
    start_timeout_seconds: PositiveFloat = 120.0  # ours: imports and constructors on a busy machine


def problems(cfg: PoolConfig) -> list[Problem]:
    """What is wrong with the fields taken together."""
    if cfg.workers > cfg.num_envs:
        message = (
            f"{cfg.workers} workers cannot share {cfg.num_envs} environments. Accepted: -1 to num_envs. "
            f"Set workers to {cfg.num_envs} or less, or num_envs to {cfg.workers} or more."
        )
        return [Problem("workers", message)]
    needed = cfg.groups * max(cfg.workers, 1)
    if needed > cfg.num_envs:
        most = cfg.num_envs // max(cfg.workers, 1)
        message = (
            f"{cfg.groups} groups of {cfg.num_envs} environments leave nothing for some of {cfg.workers} workers. "
            f"Accepted: 1 to {most}. Set groups to {most} or less, or num_envs to {needed} or more."
        )
        return [Problem("groups", message)]
    return []


def worker_count(cfg: PoolConfig) -> int:
    """How many processes this is here: -1 is one per core, as far as every one has something of each group."""
    return cfg.workers if cfg.workers >= 0 else min(len(cores()), cfg.num_envs // cfg.groups)


def cores() -> list[int]:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def can_busy_wait(num_workers: int) -> bool:
    """Whether every worker of this process's pools and the learner have a core each, and one is left over.

    Only then may they busy-wait for each other (`messages.SpinWait`): on a shared core a process would take the time
    of the very process it waits for.
    """
    return num_workers + 1 < len(cores())


def split_range(count: int, parts: int) -> list[range]:
    """The indices below `count` in contiguous parts whose sizes differ by at most one."""
    bounds = [count * part // parts for part in range(parts + 1)]
    return [range(first, last) for first, last in itertools.pairwise(bounds)]


def split_envs(num_envs: int, workers: int, groups: int) -> list[list[range]]:
    """Per worker, its environments of each group; sizes differ by at most one, within a group and in total."""
    ranges: list[list[range]] = [[] for _ in range(workers)]
    dealt = 0  # What a group has left after an even split goes to one worker after another, the last first.
    for group in split_range(num_envs, groups):
        size, left_over = divmod(len(group), workers)
        larger = {(-1 - dealt - each) % workers for each in range(left_over)}
        dealt += left_over
        first = group.start
        for worker, own in enumerate(ranges):
            last = first + size + (worker in larger)
            own.append(range(first, last))
            first = last
    return ranges
