"""How many environments, in how many processes, and how long to wait for them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from intrigue.errors import Problem
from intrigue.fields import NonNegativeInt, PositiveFloat, PositiveInt


@dataclass(frozen=True)
class PoolConfig:
    """Settings of the worker pool."""

    num_envs: PositiveInt = 16  # ours: enough to fill a minibatch on two cores
    workers: NonNegativeInt = 1  # processes; 0 steps in this process, without a time limit
    step_timeout_seconds: PositiveFloat = 60.0  # RLlib's figure for a stuck sampler; also for reset, snapshot, restore
    start_timeout_seconds: PositiveFloat = 120.0  # ours: imports and constructors on a busy machine


def problems(cfg: PoolConfig) -> list[Problem]:
    """What is wrong with the fields taken together."""
    if cfg.workers > cfg.num_envs:
        message = (
            f"{cfg.workers} workers cannot share {cfg.num_envs} environments. Accepted: 0 to num_envs. "
            f"Set workers to {cfg.num_envs} or less, or num_envs to {cfg.workers} or more."
        )
        return [Problem("workers", message)]
    return []


def shares(num_envs: int, workers: int) -> list[range]:
    """Environment indices of each worker: neighbors together, sizes differing by at most one."""
    bounds = [num_envs * worker // workers for worker in range(workers + 1)]
    return [range(first, last) for first, last in itertools.pairwise(bounds)]
