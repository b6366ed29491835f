"""All environments of one process, group by group: every group is stepped by itself, the rest happens to all.

`workers=0` is this in the learner's own process; a worker has the same over its part of every group.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableSequence, Sequence
from typing import Any, final

from intrigue.envs.make import EnvMaker
from intrigue.envs.pool.checks import fault
from intrigue.envs.pool.facts import Facts
from intrigue.envs.pool.local import EnvGroup
from intrigue.envs.pool.shared_memory import Block
from intrigue.state import State


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
