"""Pools whose processes busy-wait: the same results, a core in use for a moment, and none after it."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from typing import ClassVar

import numpy as np
import pytest

from intrigue.envs.pool import messages
from intrigue.envs.pool.config import PoolConfig, can_busy_wait
from intrigue.envs.pool.pool import GroupPool, Pool, make_pool
from intrigue.envs.pool.shared_memory import map_arrays, map_header, open_memory, spec_from_state
from intrigue.envs.pool.worker_main import Server
from intrigue.envs.pool.workers import WorkerGroup
from intrigue.state import State, to_bytes

OPTIONS = {"max_steps": 9}
NUM_ENVS = 5
ASLEEP = 3 * messages.BUSY_WAIT_SECONDS  # Longer than any process busy-waits.
WATCHED_SECONDS = 0.3
BUSY_TRIES = 40  # On a machine with fewer cores free than there are processes, one of so many is undisturbed.
IDLE = 0.05  # Of the time, what a process that sleeps may use.


def noisy_pool(workers: int = 2, groups: int = 1, busy_wait: bool = True) -> Pool:
    return make_pool("noisy-tv", OPTIONS, PoolConfig(NUM_ENVS, workers, groups), 3, busy_wait=busy_wait)


def actions(steps: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 5, size=(steps, NUM_ENVS))


def worker_pids(pool: Pool) -> list[int]:
    assert isinstance(pool, GroupPool) and isinstance(pool._stepper, WorkerGroup)
    return [worker.pid for worker in pool._stepper._workers]


def processor_seconds(pid: int) -> float:
    """What a process has used; its clock as in linux/posix-timers.h, `MAKE_PROCESS_CPUCLOCK` of `CPUCLOCK_SCHED`."""
    return time.clock_gettime((~pid << 3) | 2)


def trace(pool: Pool, pauses: bool) -> list[bytes]:
    """Everything a pool gives, groups in turn, with all other orders between steps."""
    orders = actions(25)
    given = [pool.reset().tobytes()]
    saved = None
    for t, order in enumerate(orders):
        for group, rows in enumerate(pool.groups):
            pool.send(group, order[rows])
        for group in range(len(pool.groups)):
            given += [each.tobytes() for each in pool.receive(group)]
        if pauses and t % 5 == 0:
            time.sleep(ASLEEP)
        if t == 10:
            saved = pool.snapshot()
        if t == 15:
            given.append(pool.reset().tobytes())
        if t == 20:
            assert saved is not None
            given.append(pool.restore(saved).tobytes())
    return [*given, to_bytes(pool.snapshot())]


@pytest.mark.parametrize(("workers", "groups", "pauses"), [(1, 1, False), (2, 1, True), (1, 3, True), (2, 2, False)])
def test_results_are_the_same_to_the_bit(workers: int, groups: int, pauses: bool) -> None:
    given = []
    for busy_wait in (False, True):
        pool = noisy_pool(workers, groups, busy_wait)
        given.append(trace(pool, pauses))
        pool.close()
    assert given[0] == given[1]


class Recorded:
    """A `SpinWait` that returns at once and records for how long it was asked to wait."""

    asked: ClassVar[list[float]] = []

    def __init__(self, control: socket.socket) -> None:
        del control

    def wait_until(self, deadline: float) -> bool:
        self.asked.append(deadline - time.monotonic())
        return True


@pytest.mark.parametrize("busy_wait", [True, False])
def test_a_worker_busy_waits_after_steps_only(busy_wait: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "SpinWait", Recorded)
    monkeypatch.setattr(Recorded, "asked", [])
    ours, theirs = socket.socketpair()
    memory = open_memory(1)
    server = Server(theirs, memory, 1, map_header(memory, 1)[:2])
    serving = threading.Thread(target=server.run)
    serving.start()
    said = {"path": sys.path, "plugins": [], "env_id": "noisy-tv", "options": OPTIONS, "seed": 3, "num_envs": NUM_ENVS}
    begin = {**said, "busy_wait": busy_wait, "ranges": [[0, NUM_ENVS]], "core": None}

    def order(kind: bytes, tree: State = None) -> State:
        ours.sendall(messages.pack(kind, tree))
        answer = messages.receive(ours)
        assert answer is not None and answer[0] != messages.ERROR, answer
        return answer[1]

    with ours, theirs:
        block = map_arrays(memory, 1, spec_from_state(order(messages.BEGIN, begin)), NUM_ENVS)
        order(messages.MAP)
        order(messages.RESET, {"purpose": ["env"], "steps": 0})
        for kind in (messages.STEPS[0], messages.STEPS[0], messages.SNAPSHOT, messages.STEPS[0]):
            block.action[:] = 0
            order(kind, {})
        ours.shutdown(socket.SHUT_WR)
        serving.join()
    os.close(memory)
    assert len(Recorded.asked) == (3 if busy_wait else 0)
    assert all(0 < each <= messages.BUSY_WAIT_SECONDS for each in Recorded.asked)


def test_a_worker_sleeps_when_nothing_comes() -> None:
    pool = noisy_pool(workers=1)
    pool.reset()
    for action in actions(20):
        pool.step(action)
    time.sleep(ASLEEP)
    (pid,) = worker_pids(pool)
    before = processor_seconds(pid)
    time.sleep(WATCHED_SECONDS)
    assert processor_seconds(pid) - before < IDLE * WATCHED_SECONDS
    pool.close()


@pytest.mark.parametrize("busy_wait", [True, False])
def test_the_pool_busy_waits_for_a_step_and_then_sleeps(busy_wait: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "SHORT_POLLS", 0)
    pool = noisy_pool(workers=1, busy_wait=busy_wait)
    pool.reset()
    (pid,) = worker_pids(pool)

    def used_for(action: np.ndarray) -> float:
        os.kill(pid, signal.SIGSTOP)
        pool.send(0, action)
        later = threading.Timer(WATCHED_SECONDS, os.kill, (pid, signal.SIGCONT))
        later.start()
        before = time.thread_time()
        pool.receive(0)
        used = time.thread_time() - before
        later.join()
        assert used < IDLE * WATCHED_SECONDS
        return used

    # On a busy machine some of its two milliseconds are another's, but not each time.
    orders = actions(BUSY_TRIES if busy_wait else 3)
    assert any(used_for(each) > messages.BUSY_WAIT_SECONDS / 2 for each in orders) == busy_wait
    pool.close()


def test_spin_wait_sees_messages_silence_and_the_end() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        spin_wait = messages.SpinWait(ours)
        begun = time.monotonic()
        assert not spin_wait.wait_until(begun + 0.01)
        assert 0.01 <= time.monotonic() - begun < 1.0
        theirs.sendall(messages.OK)
        assert spin_wait.wait_until(0.0), "what is there is seen, however late"
        assert messages.receive(ours) == (messages.OK, None)
        spin_wait = messages.SpinWait(ours)
        later = threading.Timer(0.02, theirs.close)
        later.start()
        assert spin_wait.wait_until(time.monotonic() + 60.0)
        later.join()
        assert messages.receive(ours) is None


def test_after_a_miss_spin_wait_polls_once_a_call() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        spin_wait = messages.SpinWait(ours)
        assert not spin_wait.wait_until(time.monotonic() + 0.01)
        begun = time.monotonic()
        assert not any(spin_wait.wait_until(begun + 60.0) for _ in range(messages.SHORT_POLLS - 1))
        assert time.monotonic() - begun < 1.0
        theirs.sendall(messages.OK)
        assert spin_wait.wait_until(begun + 60.0), "a single poll sees what is there"
        messages.receive(ours)
        begun = time.monotonic()
        assert not spin_wait.wait_until(begun + 0.01)
        assert time.monotonic() - begun >= 0.01, "then it spins again"


def test_busy_waiting_needs_a_core_for_every_process_and_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    for count, most in ((1, -1), (2, 0), (3, 1), (16, 14)):
        monkeypatch.setattr("intrigue.envs.pool.config.cores", lambda count=count: list(range(count)))
        assert [workers for workers in range(20) if can_busy_wait(workers)] == list(range(most + 1))


def test_without_workers_busy_wait_changes_nothing() -> None:
    lone, busy_wait = (
        make_pool("noisy-tv", OPTIONS, PoolConfig(NUM_ENVS, workers=0), 3, busy_wait=each) for each in (False, True)
    )
    assert trace(lone, pauses=False) == trace(busy_wait, pauses=False)
