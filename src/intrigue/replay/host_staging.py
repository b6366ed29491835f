"""Batches steps on the host, so that a device receives up to a thousand in one copy.

Windows are drawn from finished episodes only, so the steps of an episode under way can wait. Draws are bitwise the same
as if every step had been copied at once: steps are also evicted by the number taken, not by the number copied.
"""

from __future__ import annotations

from typing import final

import numpy as np
import torch

from intrigue.envs.pool.pool import PoolStep
from intrigue.replay.buffer import ReplayBuffer
from intrigue.replay.step_store import VectorStep
from intrigue.spaces import Array

MAX_STEPS = 1024  # staged at a time: one episode of URLB's domains


@final
class HostStaging:
    """The newest steps of one replay buffer's environments, without skills."""

    def __init__(self, replay: ReplayBuffer) -> None:
        self.replay = replay
        store = replay.store
        # Never more than a chunk: the ring must hold whole chunks behind the newest rows.
        self.capacity = max(1, min(MAX_STEPS, store.ring.chunk // (2 * store.num_envs)))
        self.count = 0
        self._rows = 0
        """Rows that the staged steps will take."""
        self._staged: VectorStep | None = None
        self._pending: tuple[int, PoolStep] | None = None
        """The step that is announced and not copied yet, and its index."""
        self._skill = torch.zeros(self.capacity, store.num_envs, 0)

    def push(self, action: Array, step: PoolStep) -> bool:
        """Announce one step of all environments; True if it ended an episode, which can then be sampled.

        `copy_pending` copies its arrays and must be called before they change.
        """
        assert self._pending is None, "the step before was not copied"
        staged = self._staged or self._allocate(action, step)
        staged.action[self.count] = action
        self._pending = self.count, step
        over = (step.terminated | step.truncated) & step.valid
        ended = int(np.count_nonzero(over))
        self.count += 1
        self._rows += self.replay.store.num_envs + ended
        if ended or self.count == self.capacity:
            self.flush()
        return ended > 0

    def copy_pending(self) -> None:
        """Copy the arrays of the step announced last."""
        self._copy_now()

    def _copy_now(self) -> None:
        # Not in `copy_pending`: benchmarks time that and `push`, which flushes; it would be counted twice.
        if self._pending is not None:
            assert self._staged is not None
            (at, step), staged, self._pending = self._pending, self._staged, None
            staged.reward[at], staged.valid[at] = step.reward, step.valid
            staged.terminated[at], staged.truncated[at] = step.terminated, step.truncated
            staged.next_frames[at], staged.frames[at] = step.next_obs, step.obs

    def flush(self) -> None:
        """Move the staged steps to the replay buffer."""
        self._copy_now()
        if self.count:
            assert self._staged is not None
            self.replay.extend(self._staged.map_fields(lambda field: field[: self.count]))
            self.count = self._rows = 0

    def evict(self) -> None:
        """Update the first sampleable step as if the staged steps had been copied."""
        store, episodes = self.replay.store, self.replay.episodes
        assert episodes is not None
        store.first = store.first_step_after(store.ring.head + self._rows)  # stored, so that each step is passed once
        episodes.publish(store.first_sampleable_step)

    @property
    def num_sampleable(self) -> int:
        """Transitions that can be drawn, staged ones included; to be read after `evict`."""
        store, episodes = self.replay.store, self.replay.episodes
        if not episodes:
            return 0
        return (
            max(0, store.steps + self.count - self.replay.plan.steps + 1 - store.first_sampleable_step) * store.num_envs
        )

    def _allocate(self, action: Array, step: PoolStep) -> VectorStep:
        def empty_like(one: Array) -> Array:
            return np.zeros((self.capacity, *one.shape), one.dtype)

        self._staged = VectorStep(
            action=empty_like(action),
            skill=self._skill,
            reward=empty_like(step.reward),
            terminated=empty_like(step.terminated),
            truncated=empty_like(step.truncated),
            valid=empty_like(step.valid),
            next_frames=empty_like(step.next_obs),
            frames=empty_like(step.obs),
        )
        return self._staged
