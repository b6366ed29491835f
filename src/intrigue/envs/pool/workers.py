"""W worker processes that step one pool's environments.

Workers start together and build their environments at the same time. Every request goes to all of them, and the pool
waits for all answers under one time limit. Steps of several groups may be in progress at once: a worker that has done
its part of one continues with the next. The first worker that dies, fails or times out ends them all: the error names
the environment, and no process or memory is left.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any, final

from intrigue.envs.pool import messages
from intrigue.envs.pool.checks import describe_when, make_fault
from intrigue.envs.pool.config import PoolConfig, cores, split_envs, worker_count
from intrigue.envs.pool.local import check_same_spec
from intrigue.envs.pool.shared_memory import (
    STAGES,
    EnvSpec,
    SharedArrays,
    map_arrays,
    map_header,
    open_memory,
    spec_from_state,
)
from intrigue.envs.pool.worker_process import WorkerHandle, import_path
from intrigue.envs.registry import ENVS, split_id
from intrigue.errors import ConfigError, EnvironmentFault
from intrigue.state import State

CHECK_SECONDS = 1.0  # A worker whose children keep its socket open is only found dead by checking its process.
CLOSE_SECONDS = 2.0  # How long environments may take to close before they are killed.


@final
class WorkerGroup:
    """The workers of one pool: what `LocalEnvs` is to one process, for all of them.

    `cancel`: when set by another thread, waiting for workers raises CancelledError and ends them. It is for a pool that
    is being started and may turn out not to be needed.
    """

    def __init__(
        self,
        env_id: str,
        options: Mapping[str, Any],
        cfg: PoolConfig,
        seed: int,
        plugins: Sequence[Path],
        busy_wait: bool = False,
        cancel: threading.Event | None = None,
    ) -> None:
        self._env_id = env_id
        self._cfg = cfg
        self._busy_wait = busy_wait
        self._cancel = cancel
        self._num_workers = worker_count(cfg)
        self._steps = [0] * cfg.groups
        self._stepping: list[set[int]] = [set() for _ in range(cfg.groups)]  # Workers still stepping each group.
        self._pending: set[int] = set()  # Workers that have not answered the last other request.
        self._answers: dict[int, State] = {}
        self._workers: list[WorkerHandle] = []
        self._memory_fd = memory_fd = open_memory(self._num_workers)
        lifeline_fd, lifeline_end = os.pipe()
        descriptors = [memory_fd, lifeline_fd, lifeline_end]
        # Runs once: on close, on a fault, when the pool is garbage-collected, or at interpreter exit.
        self._shut_down = weakref.finalize(self, _shut_down, self._workers, descriptors, os.getpid())
        self._now = map_header(memory_fd, self._num_workers)
        variables = ENVS.get(split_id(env_id)[0]).cls.worker_variables
        try:
            for slot, ranges in enumerate(split_envs(cfg.num_envs, self._num_workers, cfg.groups)):
                self._raise_if_cancelled()
                worker = WorkerHandle(slot, self._num_workers, ranges, memory_fd, lifeline_fd, variables)
                self._workers.append(worker)
            self.spec = self._build_envs(options, seed, plugins)
        except BaseException:
            self._shut_down()
            raise

    def map_arrays(self) -> SharedArrays:
        """The arrays all workers write into. Not kept here, so that the memory is unmapped with its users."""
        arrays = map_arrays(self._memory_fd, self._num_workers, self.spec, self._cfg.num_envs)
        self._broadcast(messages.MAP)
        return arrays

    def reset(self, purpose: Sequence[str | int], steps: int) -> None:
        """As `LocalEnvs.reset`."""
        self._steps = [steps] * len(self._steps)
        self._broadcast(messages.RESET, {"purpose": list(purpose), "steps": steps})

    def send(self, group: int) -> None:
        """Have every worker step its part of this group."""
        self._steps[group] += 1
        self._stepping[group].update(range(self._num_workers))
        # Spelled out here and below: a context manager costs several microseconds at every step.
        try:
            self._send([messages.STEPS[group]] * self._num_workers, self._cfg.step_timeout_seconds)
        except BaseException:
            self._shut_down()
            raise

    def receive(self, group: int) -> None:
        """Wait until the step of this group is done."""
        try:
            self._wait(self._stepping[group], self._cfg.step_timeout_seconds, self._busy_wait)
        except BaseException:
            self._shut_down()
            raise

    def snapshot(self) -> list[State]:
        """As `LocalEnvs.snapshot`."""
        answers = self._broadcast(messages.SNAPSHOT, {})
        states: list[State] = [None] * self._cfg.num_envs
        for worker, answer in zip(self._workers, answers, strict=True):
            for index, state in zip(itertools.chain(*worker.ranges), answer["states"], strict=True):
                states[index] = state
        return states

    def restore(self, states: Sequence[State], steps: int) -> None:
        """As `LocalEnvs.restore`."""
        self._steps = [steps] * len(self._steps)
        trees = [[states[index] for index in itertools.chain(*worker.ranges)] for worker in self._workers]
        self._request([messages.pack(messages.RESTORE, {"states": tree, "steps": steps}) for tree in trees])

    def close(self) -> None:
        """Ask the environments to close, then end every worker. Does nothing the second time."""
        if self._shut_down.alive:
            self._cancel = None
            with contextlib.suppress(EnvironmentFault):
                self._request([messages.CLOSE] * self._num_workers, CLOSE_SECONDS)
            self._shut_down()

    def _build_envs(self, options: Mapping[str, Any], seed: int, plugins: Sequence[Path]) -> EnvSpec:
        shared = {
            "path": import_path(),
            "plugins": [str(path) for path in plugins],
            "env_id": self._env_id,
            "options": dict(options),
            "seed": seed,
            "num_envs": self._cfg.num_envs,
            "busy_wait": self._busy_wait,
        }
        packed = []
        for worker, core in zip(self._workers, self._pick_cores(), strict=True):
            own = {"ranges": [[each.start, each.stop] for each in worker.ranges], "core": core}
            packed.append(messages.pack(messages.BEGIN, {**shared, **own}))
        specs = [spec_from_state(answer) for answer in self._request(packed, self._cfg.start_timeout_seconds)]
        for worker, each in zip(self._workers, specs, strict=True):
            check_same_spec(self._env_id, specs[0], each, worker.ranges[0].start)
        return specs[0]

    def _pick_cores(self) -> list[int | None]:
        """The core of each worker; None where cores are fewer, since two workers on one would wait for each other."""
        available = cores()
        if not self._cfg.pin or self._num_workers > len(available):
            return [None] * self._num_workers
        return [*available[: self._num_workers]]

    def _broadcast(self, kind: bytes, tree: State = None) -> list[State]:
        return self._request([messages.pack(kind, tree)] * self._num_workers)

    def _request(self, packed: Sequence[bytes], limit_seconds: float | None = None) -> list[State]:
        """Every worker's answer to its message. Any failure, and any interruption from outside, ends all workers."""
        limit = self._cfg.step_timeout_seconds if limit_seconds is None else limit_seconds
        self._pending.update(range(self._num_workers))
        try:
            self._send(packed, limit)
            self._wait(self._pending, limit)
        except BaseException:
            self._shut_down()
            raise
        return [self._answers[worker.slot] for worker in self._workers]

    def _send(self, packed: Sequence[bytes], limit: float) -> None:
        for worker, message in zip(self._workers, packed, strict=True):
            try:
                worker.send(message, limit)
            except TimeoutError:
                raise self._timed_out(worker, limit) from None
            except OSError:
                raise self._died(worker) from None

    def _wait(self, pending: set[int], limit: float, busy_wait: bool = False) -> None:
        """Block until every worker in `pending` has answered. Other messages that arrive meanwhile are recorded."""
        deadline = time.monotonic() + limit
        # One worker after another, so that few of them wake this process: most have answered by the time it comes to
        # them, and their cores are needed for stepping.
        for worker in self._workers:
            if worker.slot not in pending:
                continue
            if busy_wait:
                until = min(deadline, time.monotonic() + messages.BUSY_WAIT_SECONDS)
                while worker.slot in pending and worker.spin_until(until):
                    self._drain(worker)
            else:
                self._drain(worker)
            while worker.slot in pending:
                self._raise_if_cancelled()
                if not worker.wait(min(CHECK_SECONDS, deadline - time.monotonic())):
                    self._check_workers(pending, deadline, limit)
                self._drain(worker)

    def _raise_if_cancelled(self) -> None:
        if self._cancel is not None and self._cancel.is_set():
            raise CancelledError

    def _drain(self, worker: WorkerHandle) -> None:
        """Record the messages that have arrived from a worker."""
        try:
            arrived = worker.poll()
        except EOFError:
            raise self._died(worker) from None
        for kind, tree in arrived:
            if kind in messages.GROUP_OF:
                self._stepping[messages.GROUP_OF[kind]].discard(worker.slot)
            elif kind != messages.ERROR:
                self._pending.discard(worker.slot)
                self._answers[worker.slot] = tree
            elif tree["kind"] == "config":
                raise ConfigError(tree["message"])
            else:
                raise EnvironmentFault(tree["message"] + worker.last_output())

    def _check_workers(self, pending: set[int], deadline: float, limit: float) -> None:
        """After a silence: find who of all pending workers has answered, failed, died or timed out."""
        is_late = time.monotonic() >= deadline
        for worker in self._workers:
            self._drain(worker)
        silent = [worker for worker in self._workers if worker.slot in pending]
        for worker in silent:
            worker.wait(0)
            if worker.has_exited():
                raise self._died(worker)
        if is_late and silent:
            raise self._timed_out(silent[0], limit)

    def _died(self, worker: WorkerHandle) -> EnvironmentFault:
        return self._fault(worker, worker.exit_reason() + ".")

    def _timed_out(self, worker: WorkerHandle, limit: float) -> EnvironmentFault:
        field = "start_timeout_seconds" if self._stage(worker) == "build" else "step_timeout_seconds"
        cause = f"no answer within {limit:g} seconds. Find what it waits for, or raise {field}."
        return self._fault(worker, cause)

    def _fault(self, worker: WorkerHandle, cause: str) -> EnvironmentFault:
        """The error for a worker, naming the environment it was busy with."""
        stage = self._stage(worker)
        if stage == "idle":
            index, steps = ", ".join(_format_range(each) for each in worker.ranges), max(self._steps)
        else:
            busy = self._now[2 * worker.slot]
            holding = [group for group, each in enumerate(worker.ranges) if busy in each]
            index, steps = str(busy), self._steps[holding[0]] if holding else 0
        return make_fault(self._env_id, index, describe_when(stage, steps), cause + worker.last_output())

    def _stage(self, worker: WorkerHandle) -> str:
        return STAGES[self._now[2 * worker.slot + 1]]


def _format_range(indices: range) -> str:
    return str(indices.start) if len(indices) == 1 else f"{indices.start} to {indices.stop - 1}"


def _shut_down(workers: Sequence[WorkerHandle], descriptors: Sequence[int], owner: int) -> None:
    # A forked child inherits this finalizer, but must not end its parent's workers.
    if os.getpid() != owner:
        return
    for worker in workers:
        worker.kill()
    for worker in workers:
        worker.release()
    for descriptor in descriptors:
        os.close(descriptor)
