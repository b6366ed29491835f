"""Environment pools that start at the same time, for seeds whose other parts are made one after another.

A worker process imports its simulator and builds its environments: seconds, in which this process only waits. Threads
do that waiting, and nothing else:

    with PoolsAhead(plugins, beside=8) as pools:
        first = build(configs[0], plugins, beside=8)        # alone: what is refused is refused here
        pools.start(configs[1:])                            # returns at once
        others = [build(cfg, plugins, beside=8, pools=pools) for cfg in configs[1:]]

Random numbers are drawn by whoever builds (networks, in the order of the seeds) and in the workers (environments, from
their own seeds), never in these threads, so a run does not depend on when its pool was ready.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import final

from intrigue.config.run import RunConfig
from intrigue.envs.pool.config import cores, worker_count
from intrigue.envs.pool.pool import Pool
from intrigue.envs.registry import ENVS, split_id
from intrigue.training.build import make_run_pool, pool_config_for

# How long leaving waits for pools under way. A thread hears of it within `crew.LOOK_SECONDS`; the rest is for killing.
LEAVE_SECONDS = 5.0


class _NobodyWants(BaseException):
    """Thrown into a thread that is making a pool, as Ctrl-C is into the main thread: a crew ends its workers on it."""


@final
class PoolsAhead:
    """Pools under way for some of `beside` runs that step at the same time. Outside of `with` it starts nothing."""

    def __init__(self, plugins: Sequence[Path], *, beside: int) -> None:
        self._plugins, self._beside = plugins, beside
        self._promised: list[tuple[RunConfig, Future[Pool]]] = []
        self._queue: deque[tuple[RunConfig, Future[Pool]]] = deque()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()  # of the two below
        self._making: set[int] = set()  # threads that may be interrupted
        self._open = False

    def __enter__(self) -> PoolsAhead:
        self._open = True
        return self

    def start(self, configs: Sequence[RunConfig]) -> None:
        """Begin with the pools of these; at most as many workers start at a time as there are cores.

        Environments that are stepped in this process are left to whoever builds: not every simulator may be made in
        one thread and used in another.
        """
        if not self._open:
            raise RuntimeError("PoolsAhead.start outside of its `with`")
        wanted = [cfg for cfg in configs if _in_processes(cfg, self._beside)]
        for cfg in wanted:  # Imported here: two threads would both run a plug-in's file.
            ENVS.get(split_id(cfg.env_id)[0])
        new = [(cfg, Future[Pool]()) for cfg in wanted]
        self._promised += new
        self._queue.extend(new)
        most = max((worker_count(pool_config_for(cfg, self._beside)) for cfg in wanted), default=1)
        for number in range(min(len(new), max(1, len(cores()) // most))):
            # Daemons: one that is stuck does not keep the interpreter, whose end is its workers' end too.
            thread = threading.Thread(target=self._work, name=f"pools-ahead-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def take(self, cfg: RunConfig) -> Pool | None:
        """The pool begun for these settings, which is the caller's now; None if there is none.

        Raises:
            Exception: what `make_pool` raised.
        """
        for number, (begun, promise) in enumerate(self._promised):
            if _asks_for(begun) == _asks_for(cfg):
                pool = promise.result()
                del self._promised[number]
                return pool
        return None

    def close(self) -> None:
        """Let go of every pool that nobody took. Does nothing the second time."""
        with self._lock:
            self._open = False
            self._queue.clear()
            for thread in self._making:
                _interrupt(thread)
            self._making.clear()
        deadline = time.monotonic() + LEAVE_SECONDS
        for each in self._threads:
            each.join(max(0.0, deadline - time.monotonic()))
        self._threads.clear()
        with contextlib.ExitStack() as stack:
            for _, promise in self._promised:
                if promise.done() and promise.exception() is None:
                    stack.callback(promise.result().close)
            self._promised.clear()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _work(self) -> None:
        with contextlib.suppress(_NobodyWants):
            while True:
                try:
                    cfg, promise = self._queue.popleft()
                except IndexError:
                    return
                self._make(cfg, promise)

    def _make(self, cfg: RunConfig, promise: Future[Pool]) -> None:
        me = threading.get_ident()
        if not self._begin(me):
            return
        try:
            found: Pool | BaseException = make_run_pool(cfg, self._plugins, self._beside)
        except _NobodyWants:
            raise
        except BaseException as error:
            found = error
        wanted = self._end(me)
        if isinstance(found, BaseException):
            promise.set_exception(found)
        elif wanted:
            promise.set_result(found)
        else:
            found.close()

    def _begin(self, thread: int) -> bool:
        """From here on the thread may be interrupted; False if nobody wants a pool any more."""
        with self._lock:
            if self._open:
                self._making.add(thread)
            return self._open

    def _end(self, thread: int) -> bool:
        """From here on the thread is not interrupted; False if nobody wants its pool any more."""
        with self._lock:
            self._making.discard(thread)
            return self._open


def _in_processes(cfg: RunConfig, beside: int) -> bool:
    return bool(worker_count(pool_config_for(cfg, beside))) and not cfg.env_options.get("native_vector")


def _asks_for(cfg: RunConfig) -> tuple[object, ...]:
    """All of a configuration that its pool hangs on."""
    return cfg.env_id, cfg.env_options, cfg.pool, cfg.run.seed


def _interrupt(thread: int) -> None:
    """Raise `_NobodyWants` in this thread at its next instruction: `make_pool` waits in it and asks nobody else."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_NobodyWants))
