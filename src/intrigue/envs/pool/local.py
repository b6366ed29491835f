"""Steps environments in this process, checks what they return, and writes it into `SharedArrays`.

`workers=0` is this in the learner's process; a worker process has the same over its part of every group.

An episode that ends is reset within the same step: `next_obs` keeps the true successor, `obs` the first observation of
the new episode. Environment i draws its first seed from (seed, "env", i) and keeps its own random stream after that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, MutableSequence, Sequence
from math import isfinite
from typing import Any, NamedTuple, final

import numpy as np

from intrigue.envs.base import Env
from intrigue.envs.make import EnvMaker
from intrigue.envs.pool.checks import (
    Violation,
    check_flag,
    check_obs,
    check_reward,
    describe_non_finite,
    describe_when,
    make_fault,
)
from intrigue.envs.pool.shared_memory import STAGES, EnvSpec, SharedArrays, make_env_spec
from intrigue.errors import ConfigError
from intrigue.seeding import SEED_LIMIT, derive_seed
from intrigue.spaces import Array
from intrigue.state import State

BUILD, RESET, STEP, SNAPSHOT, RESTORE = (
    STAGES.index(each) for each in ("build", "reset", "step", "snapshot", "restore")
)


class GroupRows(NamedTuple):
    """The rows one group of environments writes, sliced once: making array views at every step is slow."""

    envs: list[Env]
    arrays: SharedArrays
    next_obs: list[Array]
    is_finite: Array | None  # Scratch space, where observations can be NaN or infinite.


@final
class LocalEnvs:
    """Environments of one process: `ranges` has the indices of each group. Groups are stepped separately.

    `now` always holds the index of the environment at work and its stage, readable by another process.
    """

    def __init__(
        self,
        env_id: str,
        options: Mapping[str, Any],
        seed: int,
        ranges: Sequence[range],
        now: MutableSequence[int] | memoryview,
    ) -> None:
        self._env_id = env_id
        self._seed = seed
        self._ranges = ranges
        self._now = now
        self._steps = [0] * len(ranges)
        self._envs: dict[int, Env] = {}
        self._groups: list[GroupRows] = []
        self._arrays: SharedArrays
        make = EnvMaker(env_id, options)
        self._for_each(BUILD, lambda index: self._envs.update({index: make()}))
        specs = [make_env_spec(self._envs[each.start].info) for each in ranges]
        for each, spec in zip(ranges, specs, strict=True):
            check_same_spec(env_id, specs[0], spec, each.start)
        self.spec: EnvSpec = specs[0]
        self._newest = -1 if self.spec.stack else ...  # Of stacked frames only the newest is transferred.

    def attach(self, arrays: SharedArrays) -> None:
        """Read actions from, and write results into, these arrays of the whole pool from now on."""
        self._arrays = arrays
        self._groups = []
        for each in self._ranges:
            rows = arrays.rows(each)
            mask = np.zeros(rows.next_obs.shape, bool) if self.spec.spaces.obs.kind == "vector" else None
            self._groups.append(GroupRows([self._envs[index] for index in each], rows, list(rows.next_obs), mask))

    def reset(self, purpose: Sequence[str | int], steps: int) -> None:
        """Start new episodes, seeded for this purpose; step counts continue from `steps`."""
        self._steps = [steps] * len(self._ranges)

        def start(index: int) -> None:
            seed = derive_seed(self._seed, *purpose, index)
            obs = self._envs[index].reset(seed)
            self._envs[index].shorten_first_episode(seed / SEED_LIMIT)
            check_obs(obs, self.spec.spaces.obs)
            self._arrays.obs[index] = obs[self._newest]

        self._for_each(RESET, start)

    def send(self, group: int) -> None:
        """Nothing: without a worker the step is taken by `receive`."""

    def receive(self, group: int) -> None:
        """Step a group with the actions in the arrays and reset the episodes that ended."""
        # The pool's inner loop: it allocates no array, and what can be checked for all rows at once is checked below.
        envs, arrays, next_obs, is_finite = self._groups[group]
        now, first, places = self._now, self._ranges[group].start, self.spec.places
        spec, newest = self.spec.spaces.obs, self._newest
        shape, dtype = spec.shape, spec.dtype
        rewards, terminations, truncations, where = arrays.reward, arrays.terminated, arrays.truncated, arrays.place
        self._steps[group] += 1
        now[1] = STEP
        any_ended = False
        i = 0
        try:
            for i, (env, action, row) in enumerate(zip(envs, arrays.action, next_obs, strict=True)):
                now[0] = first + i
                obs, reward, terminated, truncated, place = env.step(action)
                if type(obs) is not np.ndarray or obs.shape != shape or obs.dtype != dtype:
                    check_obs(obs, spec)
                row[...] = obs[newest]
                rewards[i] = reward if type(reward) is float and isfinite(reward) else check_reward(reward)
                terminations[i] = over = (
                    terminated if type(terminated) is bool else check_flag(terminated, "terminated")
                )
                truncations[i] = cut = truncated if type(truncated) is bool else check_flag(truncated, "truncated")
                any_ended |= over or cut
                if not -1 <= place < places:
                    raise Violation("place", f"a number from -1 to below {places}", str(place))
                where[i] = place
            if is_finite is not None and not np.isfinite(arrays.next_obs, out=is_finite).all():
                i = next(i for i, row in enumerate(next_obs) if not np.isfinite(row).all())
                raise Violation("observation", "finite numbers", describe_non_finite(next_obs[i]))
        except Exception as error:
            raise make_fault(self._env_id, first + i, describe_when("step", self._steps[group]), error) from error
        arrays.obs[...] = arrays.next_obs
        if any_ended:
            self._for_each(RESET, self._restart, (first + int(i) for i in np.flatnonzero(terminations | truncations)))
        now[1] = 0

    def snapshot(self) -> list[State]:
        """Every environment's own state, in the order of their indices."""
        states: list[State] = []
        self._for_each(SNAPSHOT, lambda index: states.append(self._envs[index].snapshot()))
        return states

    def restore(self, states: Sequence[State], steps: int) -> None:
        """Restore every environment; states in the order `snapshot` returned."""
        self._steps = [steps] * len(self._ranges)
        state_of = dict(zip(self._envs, states, strict=True))
        self._for_each(RESTORE, lambda index: self._envs[index].restore(state_of[index]))

    def close(self) -> None:
        """Close every environment; errors are ignored, as nothing can be lost any more."""
        for env in self._envs.values():
            with contextlib.suppress(Exception):
                env.close()
        self._envs, self._groups = {}, []

    def _restart(self, index: int) -> None:
        obs = self._envs[index].reset(None)
        check_obs(obs, self.spec.spaces.obs)
        self._arrays.obs[index] = obs[self._newest]

    def _for_each(self, stage: int, act: Callable[[int], None], indices: Iterable[int] | None = None) -> None:
        """Call `act` with every index (or these); an error becomes a fault that names the environment."""
        self._now[1] = stage
        for index in (i for each in self._ranges for i in each) if indices is None else indices:
            self._now[0] = index
            try:
                act(index)
            except Exception as error:
                if stage == BUILD and isinstance(error, ConfigError):
                    raise
                steps = next(steps for steps, each in zip(self._steps, self._ranges, strict=True) if index in each)
                raise make_fault(self._env_id, index, describe_when(STAGES[stage], steps), error) from error
        self._now[1] = 0


def check_same_spec(env_id: str, first: EnvSpec, other: EnvSpec, index: int) -> None:
    """Refuse environments of one pool that differ in their specification."""
    if other != first:
        cause = f"expected the same spaces as index 0, {first}, got {other}. Build every environment alike."
        raise make_fault(env_id, index, "while it was built", cause)
