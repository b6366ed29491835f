"""Worker pools started at the same time, for seeds whose other parts are built one after another.

A worker process takes seconds to import its simulator and build its environments, while this process only waits.
Threads do that waiting, and nothing else:

    with PrestartedPools(plugins, concurrent_runs=8) as pools:
        first = build(configs[0], plugins, concurrent_runs=8)        # alone: a refused configuration is refused here
        pools.start(configs[1:])                            # returns at once
        others = [build(cfg, plugins, concurrent_runs=8, pools=pools) for cfg in configs[1:]]

Random numbers are drawn by the caller (networks, in the order of the seeds) and in the workers (environments, from
their own seeds), never in these threads, so a run does not depend on when its pool was ready.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, final

from intrigue.config.run import RunConfig
from intrigue.envs.pool.config import cores, worker_count
from intrigue.envs.pool.pool import Pool
from intrigue.envs.registry import ENVS, split_id
from intrigue.training.build import make_run_pool, pool_config_for


class PoolStart(NamedTuple):
    """One pool that is being started, or is ready."""

    cfg: RunConfig
    future: Future[Pool]
    cancel: threading.Event


@final
class PrestartedPools:
    """Pools for some of `concurrent_runs` runs that step at the same time. Starts nothing outside of `with`."""

    def __init__(self, plugins: Sequence[Path], *, concurrent_runs: int) -> None:
        self._plugins, self._concurrent_runs = plugins, concurrent_runs
        self._starts: list[PoolStart] = []
        self._threads: contextlib.ExitStack | None = None  # Executors; leaving one waits for its threads.

    def __enter__(self) -> PrestartedPools:
        self._threads = contextlib.ExitStack()
        return self

    def start(self, configs: Sequence[RunConfig]) -> None:
        """Start the pools of these; at most as many workers start at a time as there are cores.

        Environments that are stepped in this process are left to the caller: not every simulator may be created in
        one thread and used in another.
        """
        if self._threads is None:
            raise RuntimeError("PrestartedPools.start outside of its `with`")
        configs = [cfg for cfg in configs if self._has_workers(cfg)]
        if not configs:
            return
        for cfg in configs:  # Imported here: two threads would both execute a plug-in's file.
            ENVS.get(split_id(cfg.env_id)[0])
        most = max(worker_count(pool_config_for(cfg, self._concurrent_runs)) for cfg in configs)
        limit = min(len(configs), max(1, len(cores()) // most))
        executor = self._threads.enter_context(ThreadPoolExecutor(limit, "pool-prestart"))
        for cfg in configs:
            cancel = threading.Event()
            future = executor.submit(make_run_pool, cfg, self._plugins, self._concurrent_runs, cancel)
            self._starts.append(PoolStart(cfg, future, cancel))

    def take(self, cfg: RunConfig) -> Pool | None:
        """The pool started for these settings, which the caller now owns; None if there is none.

        Raises:
            Exception: what `make_pool` raised.
        """
        for number, each in enumerate(self._starts):
            if _pool_settings(each.cfg) == _pool_settings(cfg):
                pool = each.future.result()
                del self._starts[number]
                return pool
        return None

    def close(self) -> None:
        """Cancel every start and close every pool that was not taken. Does nothing the second time."""
        for each in self._starts:
            each.cancel.set()
            each.future.cancel()
        if self._threads is not None:
            self._threads.close()  # Workers that are starting check `cancel` every `workers.CHECK_SECONDS`.
            self._threads = None
        with contextlib.ExitStack() as stack:
            for each in self._starts:
                if not each.future.cancelled() and each.future.exception() is None:
                    stack.callback(each.future.result().close)
            self._starts.clear()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _has_workers(self, cfg: RunConfig) -> bool:
        return bool(worker_count(pool_config_for(cfg, self._concurrent_runs))) and not cfg.env_options.get(
            "native_vector"
        )


def _pool_settings(cfg: RunConfig) -> tuple[object, ...]:
    """Everything in a configuration that its pool depends on."""
    return cfg.env_id, cfg.env_options, cfg.pool, cfg.run.seed
