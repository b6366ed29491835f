"""Agent steps a second of a pool under random actions, and of as many processes without a pool around them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from intrigue.bench.env_bare import random_actions
from intrigue.bench.machine import resident_peak
from intrigue.envs.pool.config import PoolConfig, cores, worker_count
from intrigue.envs.pool.pool import Pool, make_pool
from intrigue.envs.pool.worker_process import worker_environment
from intrigue.spaces import Array

MIB = 1 << 20
DRAWN = 64  # Random actions of every environment drawn in advance; they are used again and again.
SETTLING = 20  # Steps of every environment before the clock starts.


@dataclass(frozen=True)
class PoolRate:
    """What one pool did."""

    workers: int
    groups: int
    pin: bool
    steps_per_second: float
    start_seconds: float
    """Building all processes and environments, and their first reset."""
    peak_host_mib: float
    """Resident memory of this process and its workers; what they share counts in each."""


def pool_rate(env_id: str, cfg: PoolConfig, seconds: float) -> PoolRate:
    """Start a pool, step it for a while, groups in turn, and close it."""
    began = time.perf_counter()
    with contextlib.closing(make_pool(env_id, {}, cfg, seed=0)) as pool:
        pool.reset()
        start = time.perf_counter() - began
        rate = stepping(pool, seconds)
        return PoolRate(worker_count(cfg), cfg.groups, cfg.pin, rate, start, resident_peak() / MIB)


def stepping(pool: Pool, seconds: float) -> float:
    """Agent steps a second under random actions: every group is sent on as soon as it is received."""
    return stepping_together([pool], seconds)


def stepping_together(pools: Sequence[Pool], seconds: float) -> float:
    """The same of several pools in one process, summed: no pool waits for another's workers."""
    groups = [each for pool in pools for each in _random_groups(pool)]
    for pool, group, part in groups:
        pool.send(group, part[0])

    def go_round(number: int) -> None:
        for pool, group, part in groups:
            pool.receive(group)
            pool.send(group, part[number % DRAWN])

    for number in range(SETTLING):
        go_round(number)
    began, rounds = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        go_round(rounds)
        rounds += 1
    taken = time.perf_counter() - began
    for pool, group, _ in groups:
        pool.receive(group)
    return rounds * sum(pool.num_envs for pool in pools) / taken


def _random_groups(pool: Pool) -> list[tuple[Pool, int, list[Array]]]:
    """Each group of the pool with its random actions, (DRAWN, rows, ...)."""
    drawn = random_actions(pool.spaces.action, DRAWN * pool.num_envs, seed=0)
    actions = drawn.reshape(DRAWN, pool.num_envs, *drawn.shape[1:])
    return [(pool, group, [each[rows] for each in actions]) for group, rows in enumerate(pool.groups)]


def bare_rate(env_id: str, workers: int, pin: bool, seconds: float) -> float:
    """Agent steps a second of `workers` processes together, each with one environment and no pool (`env_bare`)."""
    available = cores()
    places: Sequence[int] = available[:workers] if pin and workers <= len(available) else [-1] * workers
    with contextlib.ExitStack() as stack:
        processes = []
        for seed, core in enumerate(places):
            command = [sys.executable, "-m", "intrigue.bench.env_bare", env_id, str(seed), str(core), str(seconds)]
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=worker_environment({})
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            processes.append(process)
        # All are built before the first starts, so that all are timed together.
        told = [_line(process) for process in processes]
        assert told == ["ready"] * workers, told
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return sum(float(_line(process)) for process in processes)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()
