"""Steps K environments in this process, checks what they give, and writes it into a `Block`.

An episode that ends is started anew in the same step: `next_obs` keeps the true successor, `obs` the first observation
of the new episode. Environment i draws its first seed from (seed, "env", i) and keeps its own stream after that.

The loop over environments is the pool's inner loop: it makes no array, and what can be checked for all environments
at once is checked after it.

All environments of one process, group by group: every group is stepped by itself, the rest happens to all.

`workers=0` is this in the learner's own process; a worker has the same over its part of every group.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, MutableSequence, Sequence
from math import isfinite
from typing import Any, final

import numpy as np

from intrigue.envs.base import Env
from intrigue.envs.make import EnvMaker
from intrigue.envs.pool.checks import Violation, check_flag, check_obs, check_reward, fault, moment, non_finite
from intrigue.envs.pool.shared_memory import STAGES, Block, Facts, facts_of
from intrigue.errors import ConfigError
from intrigue.seeding import SEED_LIMIT, derive_seed
from intrigue.state import State

BUILD, RESET, STEP, SNAPSHOT, RESTORE = (
    STAGES.index(each) for each in ("build", "reset", "step", "snapshot", "restore")
)


@final
class EnvGroup:
    """Environments `share` of a pool. `now` always tells which one is busy with what, also to another process."""

    def __init__(
        self, env_id: str, make: Callable[[], Env], seed: int, share: range, now: MutableSequence[int] | memoryview
    ) -> None:
        self._env_id = env_id
        self._seed = seed
        self._share = share
        self._now = now
        self._steps = 0
        self._envs: list[Env] = []
        self._each(BUILD, lambda i: self._envs.append(make()), count=len(share))
        self.facts: Facts = facts_of(self._envs[0].info)
        self._block: Block
        self._rows: list[np.ndarray[Any, Any]] = []
        self._finite: np.ndarray[Any, Any] | None = None
        """Room to look for numbers that are not finite, where observations are numbers."""
        self._moved = -1 if self.facts.stack else ...  # Of stacked frames only the newest travels.

    def attach(self, block: Block) -> None:
        """Write into these rows from now on."""
        self._block = block
        self._rows = list(block.next_obs)
        self._finite = np.zeros(block.next_obs.shape, bool) if self.facts.spaces.obs.kind == "vector" else None

    def reset(self, purpose: Sequence[str | int], steps: int) -> None:
        """Start every episode anew, seeded for this purpose; the environments' own count goes on from `steps`."""
        self._steps = steps

        def start(i: int) -> None:
            seed = derive_seed(self._seed, *purpose, self._share[i])
            obs = self._envs[i].reset(seed)
            self._envs[i].stagger(seed / SEED_LIMIT)
            check_obs(obs, self.facts.spaces.obs)
            self._block.obs[i] = obs[self._moved]

        self._each(RESET, start)

    def step(self) -> None:
        """Step every environment with the block's actions and start ended episodes anew."""
        block, now, first, places = self._block, self._now, self._share.start, self.facts.places
        spec, moved = self.facts.spaces.obs, self._moved
        shape, dtype = spec.shape, spec.dtype
        rewards, terminations, truncations, where = block.reward, block.terminated, block.truncated, block.place
        self._steps += 1
        now[1] = STEP
        ended = False
        i = 0
        try:
            for i, (env, action, row) in enumerate(zip(self._envs, block.action, self._rows, strict=True)):
                now[0] = first + i
                obs, reward, terminated, truncated, place = env.step(action)
                if type(obs) is not np.ndarray or obs.shape != shape or obs.dtype != dtype:
                    check_obs(obs, spec)
                row[...] = obs[moved]
                rewards[i] = reward if type(reward) is float and isfinite(reward) else check_reward(reward)
                terminations[i] = over = (
                    terminated if type(terminated) is bool else check_flag(terminated, "terminated")
                )
                truncations[i] = cut = truncated if type(truncated) is bool else check_flag(truncated, "truncated")
                ended |= over or cut
                if not -1 <= place < places:
                    raise Violation("place", f"a number from -1 to below {places}", str(place))
                where[i] = place
        except Exception as error:
            raise fault(self._env_id, first + i, moment("step", self._steps), error) from error
        if self._finite is not None and not np.isfinite(block.next_obs, out=self._finite).all():
            i = next(i for i, row in enumerate(self._rows) if not np.isfinite(row).all())
            cause = Violation("observation", "finite numbers", non_finite(self._rows[i]))
            raise fault(self._env_id, self._share[i], moment("step", self._steps), cause)
        block.obs[...] = block.next_obs
        if ended:
            self._restart_ended()
        now[1] = 0

    def snapshot(self) -> list[State]:
        """Every environment's own state."""
        states: list[State] = []
        self._each(SNAPSHOT, lambda i: states.append(self._envs[i].snapshot()))
        return states

    def restore(self, states: Sequence[State], steps: int) -> None:
        """Put every environment back to its state."""
        self._steps = steps
        self._each(RESTORE, lambda i: self._envs[i].restore(states[i]))

    def close(self) -> None:
        """Let every environment go, also when one of them fails at it: nothing is left that could be lost."""
        for env in self._envs:
            with contextlib.suppress(Exception):
                env.close()
        self._envs = []

    def _restart_ended(self) -> None:
        block = self._block

        def start(i: int) -> None:
            if block.terminated[i] or block.truncated[i]:
                obs = self._envs[i].reset(None)
                check_obs(obs, self.facts.spaces.obs)
                block.obs[i] = obs[self._moved]

        self._each(RESET, start)

    def _each(self, stage: int, act: Callable[[int], None], count: int | None = None) -> None:
        self._now[1] = stage
        for i in range(len(self._envs) if count is None else count):
            self._now[0] = self._share[i]
            try:
                act(i)
            except Exception as error:
                if stage == BUILD and isinstance(error, ConfigError):
                    raise
                raise fault(self._env_id, self._share[i], moment(STAGES[stage], self._steps), error) from error
        self._now[1] = 0


@final
class EnvGroups:
    """One `EnvGroup` per range of environment indices."""

    def __init__(
        self,
        env_id: str,
        options: Mapping[str, Any],
        seed: int,
        shares: Sequence[range],
        now: MutableSequence[int] | memoryview,
    ) -> None:
        self._shares = shares
        self._groups: list[EnvGroup] = []
        make = EnvMaker(env_id, options)
        for share in shares:
            self._groups.append(EnvGroup(env_id, make, seed, share, now))
            same_facts(env_id, self._groups[0].facts, self._groups[-1].facts, share.start)
        self.facts: Facts = self._groups[0].facts

    def attach(self, block: Block) -> None:
        """Write into the rows of the whole pool's block that belong to these environments."""
        for group, share in zip(self._groups, self._shares, strict=True):
            group.attach(block.rows(share))

    def reset(self, purpose: Sequence[str | int], steps: int) -> None:
        """As `EnvGroup.reset`, of all."""
        for group in self._groups:
            group.reset(purpose, steps)

    def send(self, group: int) -> None:
        """Nothing: in one process a step is taken when it is asked for."""

    def receive(self, group: int) -> None:
        """Step this group."""
        self._groups[group].step()

    def snapshot(self) -> list[State]:
        """Every environment's own state, in the order of their indices."""
        return [state for group in self._groups for state in group.snapshot()]

    def restore(self, states: Sequence[State], steps: int) -> None:
        """Put every environment back; states in the order `snapshot` gave."""
        first = 0
        for group, share in zip(self._groups, self._shares, strict=True):
            group.restore(states[first : first + len(share)], steps)
            first += len(share)

    def close(self) -> None:
        """Let every environment go."""
        for group in self._groups:
            group.close()


def same_facts(env_id: str, first: Facts, other: Facts, index: int) -> None:
    """Refuse environments that differ in what a pool must know of them."""
    if other != first:
        cause = f"expected the same spaces as index 0, {first}, got {other}. Build every environment alike."
        raise fault(env_id, index, "while it was built", cause)
