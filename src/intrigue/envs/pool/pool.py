"""N environments stepped together, in this process or in W workers, behind one interface.

    pool = make_pool("rooms", {"rooms": 3}, PoolConfig(num_envs=16, workers=2), seed=0)
    obs = pool.reset()                      # (N, *obs)
    step = pool.step(action)                # PoolStep of arrays (N, ...), valid until the next call

`next_obs` is always the true successor; `obs` is what to act on next, which after an ended episode is the first
observation of the new one. Where observations are stacked frames (`pool.stack` > 0) both hold the newest frame alone,
and whoever learns stacks them. What the pool gives does not depend on the number of workers or groups.

With `groups` > 1 the environments are split into neighbouring ranges that can be stepped by themselves, so that some
act while the learner is busy with others:

    for group, rows in enumerate(pool.groups):
        pool.send(group, action[rows])      # returns at once
    for group, rows in enumerate(pool.groups):
        step = pool.receive(group)          # arrays of these rows, valid until the group's next `send`
        pool.send(group, choose(step.obs))
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, final

import numpy as np

from intrigue.envs.make import check_options, make_config, make_env
from intrigue.envs.pool.checks import check_actions
from intrigue.envs.pool.config import PoolConfig, problems, shares, worker_count
from intrigue.envs.pool.local import EnvGroups
from intrigue.envs.pool.shared_memory import Block, Facts, private_block
from intrigue.envs.pool.workers import Crew
from intrigue.envs.registry import ENVS, split_id
from intrigue.errors import CheckpointError, ConfigError, Problem, RunError
from intrigue.spaces import Array, Spaces
from intrigue.state import State

__all__ = ["GroupPool", "Pool", "PoolStep", "make_env", "make_pool"]


class PoolStep(NamedTuple):
    """What one step of every environment (or of one group) gave, each array (N, ...), valid until the next one."""

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
    bait_action: int | None = None
    stack: int = 0
    """k > 0: `spaces.obs` is a stack of k frames, of which the pool gives the newest."""
    groups: tuple[slice, ...]
    """The rows of each group, in order."""
    restarted: int = 0
    """How many environments the last `restore` had to start anew, because they cannot be saved."""

    @abc.abstractmethod
    def reset(self) -> Array:
        """First observations of new episodes, seeded from the pool's seed."""

    @abc.abstractmethod
    def step(self, action: Array) -> PoolStep:
        """One step of every environment."""

    @abc.abstractmethod
    def send(self, group: int, action: Array) -> None:
        """Begin one step of a group, with an action for each of its rows."""

    @abc.abstractmethod
    def receive(self, group: int) -> PoolStep:
        """Wait for the step that `send` began."""

    @abc.abstractmethod
    def snapshot(self) -> State:
        """All that `restore` needs to go on from here."""

    @abc.abstractmethod
    def restore(self, state: State) -> Array:
        """Go on from a snapshot; returns the observations to act on. Sets `restarted`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of environments, processes and memory; may be called again."""


class Stepper(Protocol):
    """What steps the environments of a `GroupPool`: `EnvGroups` here, or a `Crew` of workers."""

    facts: Facts

    def reset(self, purpose: Sequence[str | int], steps: int) -> None:
        """Start every episode anew."""

    def send(self, group: int) -> None:
        """Begin to step this group."""

    def receive(self, group: int) -> None:
        """Be done with stepping this group."""

    def snapshot(self) -> list[State]:
        """Every environment's state."""

    def restore(self, states: Sequence[State], steps: int) -> None:
        """Put every environment back."""

    def close(self) -> None:
        """Let everything go."""


@final
class GroupPool(Pool):
    """A pool of single environments that write into one block of memory."""

    def __init__(self, env_id: str, cfg: PoolConfig, stepper: Stepper, block: Block) -> None:
        num_envs = cfg.num_envs
        facts = stepper.facts
        self.env_id = env_id
        self.num_envs = num_envs
        self.spaces = facts.spaces
        self.frames_per_step = facts.frames_per_step
        self.places = facts.places
        self.can_snapshot = facts.can_snapshot
        self.bait_action = facts.bait_action
        self.stack = facts.stack
        ranges = shares(num_envs, cfg.groups)
        self.groups = tuple(slice(each.start, each.stop) for each in ranges)
        self._stepper: Stepper | None = stepper
        self._block: Block | None = block
        self._valid = np.ones(num_envs, dtype=bool)
        self._valid.setflags(write=False)
        whole = PoolStep(
            block.obs, block.next_obs, block.reward, block.terminated, block.truncated, self._valid, block.place
        )
        self._whole: PoolStep | None = whole
        self._parts = [PoolStep(*(array[rows] for array in whole)) for rows in self.groups]
        self._under_way = [False] * cfg.groups
        self._steps = [0] * cfg.groups
        self._restarts = 0
        self._started = False

    def reset(self) -> Array:
        stepper, block = self._open(at_rest=True)
        self._steps = [0] * len(self._steps)
        with self._closed_on_failure():
            stepper.reset(("env",), 0)
        self._started = True
        return block.obs

    def step(self, action: Array) -> PoolStep:
        stepper, block = self._open(started=True, at_rest=True)
        block.action[...] = check_actions(action, self.spaces.action, self.num_envs)
        assert self._whole is not None
        with self._closed_on_failure():
            for group in range(len(self.groups)):
                self._steps[group] += 1
                stepper.send(group)
            for group in range(len(self.groups)):
                stepper.receive(group)
        return self._whole

    def send(self, group: int, action: Array) -> None:
        stepper, block = self._open(started=True)
        if self._under_way[group]:
            raise RunError(f"group {group} of {self.env_id} is already being stepped. Call receive({group}) first.")
        rows = self.groups[group]
        block.action[rows] = check_actions(action, self.spaces.action, rows.stop - rows.start)
        self._under_way[group] = True
        self._steps[group] += 1
        # Spelled out, here and in `receive`: a context manager costs several microseconds at every step.
        try:
            stepper.send(group)
        except BaseException:
            self.close()
            raise

    def receive(self, group: int) -> PoolStep:
        stepper, _ = self._open(started=True)
        if not self._under_way[group]:
            raise RunError(f"group {group} of {self.env_id} is not being stepped. Call send({group}, action) first.")
        try:
            stepper.receive(group)
        except BaseException:
            self.close()
            raise
        self._under_way[group] = False
        return self._parts[group]

    def snapshot(self) -> State:
        stepper, block = self._open(started=True, at_rest=True)
        # Groups may be a step apart; what the steps are counted for is the wording of faults.
        steps = max(self._steps)
        state: dict[str, State] = {"num_envs": self.num_envs, "steps": steps, "restarts": self._restarts}
        if self.can_snapshot:
            with self._closed_on_failure():
                state |= {"obs": block.obs.copy(), "envs": stepper.snapshot()}
        return state

    def restore(self, state: State) -> Array:
        stepper, block = self._open(at_rest=True)
        if state["num_envs"] != self.num_envs or ("envs" in state) != self.can_snapshot:
            raise CheckpointError(
                f"the saved state is of {state['num_envs']} environments {'with' if 'envs' in state else 'without'} "
                f"their own state; this pool has {self.num_envs} of {self.env_id}. Restore into one like it."
            )
        steps = state["steps"]
        self._steps = [steps] * len(self._steps)
        self._restarts = state["restarts"]
        self.restarted = 0
        with self._closed_on_failure():
            if self.can_snapshot:
                stepper.restore(state["envs"], steps)
                block.obs[...] = state["obs"]
            else:
                self._restarts += 1
                self.restarted = self.num_envs
                stepper.reset(("restart", self._restarts), steps)
        self._started = True
        return block.obs

    def close(self) -> None:
        if self._stepper is not None:
            self._stepper.close()
        # The arrays go too, so that shared memory is unmapped once nobody uses them.
        self._stepper = self._block = self._whole = None
        self._parts = []

    @contextlib.contextmanager
    def _closed_on_failure(self) -> Iterator[None]:
        # After a fault, or an interruption between order and answer, nobody knows where the environments stand.
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _open(self, started: bool = False, at_rest: bool = False) -> tuple[Stepper, Block]:
        if self._stepper is None or self._block is None:
            raise RunError(f"the pool of {self.env_id} is closed. Build a new one.")
        if started and not self._started:
            raise RunError(f"the pool of {self.env_id} has not begun. Call reset() or restore() first.")
        if at_rest and any(self._under_way):
            group = self._under_way.index(True)
            raise RunError(f"group {group} of {self.env_id} is being stepped. Call receive({group}) first.")
        return self._stepper, self._block


def make_pool(
    env_id: str,
    options: Mapping[str, Any],
    cfg: PoolConfig,
    seed: int,
    plugins: Sequence[Path] = (),
    attentive: bool = False,
) -> Pool:
    """The pool of this environment; `options` as for `make_env`, `plugins` are files to look for the family in.

    `attentive`: workers and `receive` look out for each other for a moment before they go to sleep, which is faster
    where `config.can_be_attentive` says so, slower elsewhere, and changes no result. Nothing without workers.
    """
    for path in plugins:
        ENVS.add_file(path)
    family, name = split_id(env_id)
    check_options(family, options)
    if found := problems(cfg):
        raise ConfigError(found)
    if options.get("native_vector"):
        from intrigue.envs.pool.vector import make_vector_pool

        entry = ENVS.get(family)
        if cfg.groups > 1:
            message = f"{cfg.groups}, but native_vector steps all environments at once. Set groups to 1."
            raise ConfigError([Problem("pool.groups", message)])
        return make_vector_pool(env_id, entry.cls, make_config(entry, options), name, cfg.num_envs, seed)
    if worker_count(cfg) == 0:
        groups = EnvGroups(env_id, options, seed, shares(cfg.num_envs, cfg.groups), [0, 0])
        block = private_block(groups.facts, cfg.num_envs)
        groups.attach(block)
        return GroupPool(env_id, cfg, groups, block)
    crew = Crew(env_id, options, cfg, seed, [path.resolve() for path in plugins], attentive)
    return GroupPool(env_id, cfg, crew, crew.map_memory())
