"""N environments stepped together, in this process or in W workers, behind one interface.

    pool = make_pool("rooms", {"rooms": 3}, PoolConfig(num_envs=16, workers=2), seed=0)
    obs = pool.reset()                      # (N, *obs)
    step = pool.step(action)                # PoolStep of arrays (N, ...), valid until the next call

`next_obs` is always the true successor; `obs` is what to act on next, which after an ended episode is the first
observation of the new one. Where observations are stacked frames (`pool.stack` > 0) both hold the newest frame alone,
and the learner stacks. Results do not depend on the number of workers or groups.

With `groups` > 1 the environments are split into contiguous ranges that are stepped separately, so that some step while
the learner is busy with others:

    for group, rows in enumerate(pool.groups):
        pool.send(group, action[rows])      # returns at once
    for group, rows in enumerate(pool.groups):
        step = pool.receive(group)          # arrays of these rows, valid until the group's next `send`
        pool.send(group, choose(step.obs))
"""

from __future__ import annotations

import abc
import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from intrigue.envs.make import check_options, make_config, make_env
from intrigue.envs.pool.checks import check_actions
from intrigue.envs.pool.config import PoolConfig, problems, split_range, worker_count
from intrigue.envs.pool.local import LocalEnvs
from intrigue.envs.pool.shared_memory import SharedArrays, allocate_arrays
from intrigue.envs.pool.workers import WorkerGroup
from intrigue.envs.registry import ENVS, split_id
from intrigue.errors import CheckpointError, ConfigError, Problem, RunError
from intrigue.spaces import Array, Spaces
from intrigue.state import State

__all__ = ["GroupPool", "Pool", "PoolStep", "make_env", "make_pool"]


class PoolStep(NamedTuple):
    """The result of one step of every environment (or of one group), arrays (N, ...), valid until the next one."""

    obs: Array
    next_obs: Array
    reward: Array
    terminated: Array
    truncated: Array
    valid: Array
    """False where the row is a reset and no step (vectorized environments that reset on their next step)."""
    place: Array


class Pool(abc.ABC):
    """N environments of one id."""

    num_envs: int
    spaces: Spaces
    env_id: str
    frames_per_step: int
    places: int
    can_snapshot: bool
    distractor_action: int | None = None
    stack: int = 0
    """k > 0: `spaces.obs` is a stack of k frames, of which the pool returns the newest."""
    groups: tuple[slice, ...]
    """The rows of each group, in order."""
    restarted: int = 0
    """How many environments the last `restore` had to restart, because they cannot be saved."""

    @abc.abstractmethod
    def reset(self) -> Array:
        """First observations of new episodes, seeded from the pool's seed."""

    @abc.abstractmethod
    def step(self, action: Array) -> PoolStep:
        """One step of every environment."""

    @abc.abstractmethod
    def send(self, group: int, action: Array) -> None:
        """Start one step of a group, with an action for each of its rows."""

    @abc.abstractmethod
    def receive(self, group: int) -> PoolStep:
        """Wait for the step that `send` started."""

    @abc.abstractmethod
    def snapshot(self) -> State:
        """All that `restore` needs to continue from here."""

    @abc.abstractmethod
    def restore(self, state: State) -> Array:
        """Continue from a snapshot; returns the observations to act on. Sets `restarted`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Free environments, processes and memory; may be called again."""


@final
class GroupPool(Pool):
    """A pool of single environments that write into the same arrays, stepped in this process or by workers."""

    def __init__(self, env_id: str, cfg: PoolConfig, stepper: LocalEnvs | WorkerGroup, arrays: SharedArrays) -> None:
        num_envs = cfg.num_envs
        spec = stepper.spec
        self.env_id = env_id
        self.num_envs = num_envs
        self.spaces = spec.spaces
        self.frames_per_step = spec.frames_per_step
        self.places = spec.places
        self.can_snapshot = spec.can_snapshot
        self.distractor_action = spec.distractor_action
        self.stack = spec.stack
        self.groups = tuple(slice(each.start, each.stop) for each in split_range(num_envs, cfg.groups))
        self._stepper: LocalEnvs | WorkerGroup | None = stepper
        self._arrays: SharedArrays | None = arrays
        valid = np.ones(num_envs, dtype=bool)
        valid.setflags(write=False)
        whole = PoolStep(
            arrays.obs, arrays.next_obs, arrays.reward, arrays.terminated, arrays.truncated, valid, arrays.place
        )
        self._whole: PoolStep | None = whole
        self._group_steps = [PoolStep(*(array[rows] for array in whole)) for rows in self.groups]
        self._is_stepping = [False] * cfg.groups
        self._steps = [0] * cfg.groups
        self._restarts = 0
        self._started = False

    def reset(self) -> Array:
        stepper, arrays = self._open(idle=True)
        self._steps = [0] * len(self._steps)
        with self._closing_on_error():
            stepper.reset(("env",), 0)
        self._started = True
        return arrays.obs

    def step(self, action: Array) -> PoolStep:
        stepper, arrays = self._open(started=True, idle=True)
        arrays.action[...] = check_actions(action, self.spaces.action, self.num_envs)
        assert self._whole is not None
        with self._closing_on_error():
            for group in range(len(self.groups)):
                self._steps[group] += 1
                stepper.send(group)
            for group in range(len(self.groups)):
                stepper.receive(group)
        return self._whole

    def send(self, group: int, action: Array) -> None:
        stepper, arrays = self._open(started=True)
        if self._is_stepping[group]:
            raise RunError(f"group {group} of {self.env_id} is already being stepped. Call receive({group}) first.")
        rows = self.groups[group]
        arrays.action[rows] = check_actions(action, self.spaces.action, rows.stop - rows.start)
        self._is_stepping[group] = True
        self._steps[group] += 1
        # Spelled out, here and in `receive`: a context manager costs several microseconds at every step.
        try:
            stepper.send(group)
        except BaseException:
            self.close()
            raise

    def receive(self, group: int) -> PoolStep:
        stepper, _ = self._open(started=True)
        if not self._is_stepping[group]:
            raise RunError(f"group {group} of {self.env_id} is not being stepped. Call send({group}, action) first.")
        try:
            stepper.receive(group)
        except BaseException:
            self.close()
            raise
        self._is_stepping[group] = False
        return self._group_steps[group]

    def snapshot(self) -> State:
        stepper, arrays = self._open(started=True, idle=True)
        # Groups may be a step apart; the count only serves the wording of faults.
        steps = max(self._steps)
        state: dict[str, State] = {"num_envs": self.num_envs, "steps": steps, "restarts": self._restarts}
        if self.can_snapshot:
            with self._closing_on_error():
                state |= {"obs": arrays.obs.copy(), "envs": stepper.snapshot()}
        return state

    def restore(self, state: State) -> Array:
        stepper, arrays = self._open(idle=True)
        if state["num_envs"] != self.num_envs or ("envs" in state) != self.can_snapshot:
            raise CheckpointError(
                f"the saved state is of {state['num_envs']} environments {'with' if 'envs' in state else 'without'} "
                f"their own state; this pool has {self.num_envs} of {self.env_id}. Restore into one like it."
            )
        steps = state["steps"]
        self._steps = [steps] * len(self._steps)
        self._restarts = state["restarts"]
        self.restarted = 0
        with self._closing_on_error():
            if self.can_snapshot:
                stepper.restore(state["envs"], steps)
                arrays.obs[...] = state["obs"]
            else:
                self._restarts += 1
                self.restarted = self.num_envs
                stepper.reset(("restart", self._restarts), steps)
        self._started = True
        return arrays.obs

    def close(self) -> None:
        if self._stepper is not None:
            self._stepper.close()
        # The arrays go too, so that shared memory is unmapped when its last user is gone.
        self._stepper = self._arrays = self._whole = None
        self._group_steps = []

    @contextlib.contextmanager
    def _closing_on_error(self) -> Iterator[None]:
        # After a fault, or an interruption between request and answer, the environments' state is unknown.
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _open(self, started: bool = False, idle: bool = False) -> tuple[LocalEnvs | WorkerGroup, SharedArrays]:
        if self._stepper is None or self._arrays is None:
            raise RunError(f"the pool of {self.env_id} is closed. Build a new one.")
        if started and not self._started:
            raise RunError(f"the pool of {self.env_id} has not begun. Call reset() or restore() first.")
        if idle and any(self._is_stepping):
            group = self._is_stepping.index(True)
            raise RunError(f"group {group} of {self.env_id} is being stepped. Call receive({group}) first.")
        return self._stepper, self._arrays


def make_pool(
    env_id: str,
    options: Mapping[str, Any],
    cfg: PoolConfig,
    seed: int,
    plugins: Sequence[Path] = (),
    busy_wait: bool = False,
    cancel: threading.Event | None = None,
) -> Pool:
    """The pool of this environment; `options` as for `make_env`, `plugins` are files that may define the family.

    `busy_wait`: workers and `receive` busy-wait for each other for a moment before they sleep, which is faster where
    `config.can_busy_wait` holds, slower elsewhere, and changes no result. No effect without workers.
    `cancel`: set by another thread, it ends a start in progress (`WorkerGroup`).
    """
    for path in plugins:
        ENVS.add_file(path)
    family, name = split_id(env_id)
    check_options(family, options)
    if wrong := problems(cfg):
        raise ConfigError(wrong)
    if options.get("native_vector"):
        from intrigue.envs.pool.vector import make_vector_pool

        entry = ENVS.get(family)
        if cfg.groups > 1:
            message = f"{cfg.groups}, but native_vector steps all environments at once. Set groups to 1."
            raise ConfigError([Problem("pool.groups", message)])
        return make_vector_pool(env_id, entry.cls, make_config(entry, options), name, cfg.num_envs, seed)
    if worker_count(cfg) == 0:
        envs = LocalEnvs(env_id, options, seed, split_range(cfg.num_envs, cfg.groups), [0, 0])
        arrays = allocate_arrays(envs.spec, cfg.num_envs)
        envs.attach(arrays)
        return GroupPool(env_id, cfg, envs, arrays)
    workers = WorkerGroup(env_id, options, cfg, seed, [path.resolve() for path in plugins], busy_wait, cancel)
    return GroupPool(env_id, cfg, workers, workers.map_arrays())
