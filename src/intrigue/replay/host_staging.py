"""Steps on their way into a replay, on the host, so that a device is handed a thousand at once and not one by one.

Windows are drawn from finished episodes alone, so nobody misses the steps of one that is under way. What is drawn is to
the bit what would be drawn if every step had gone into the replay at once: also what a replay forgets, it forgets by
the number of steps taken, not by the number handed over.
"""

from __future__ import annotations

from typing import final

import numpy as np
import torch

from intrigue.envs.pool.pool import PoolStep
from intrigue.replay.buffer import ReplayBuffer
from intrigue.replay.step_store import VectorStep
from intrigue.spaces import Array

MOST_STEPS = 1024  # held back at a time: one episode of URLB's domains


@final
class HostStaging:
    """The newest steps of one replay's environments, without skills."""

    def __init__(self, replay: ReplayBuffer) -> None:
        self.replay = replay
        store = replay.store
        # Never more than a chunk, so that what the ring holds stays whole chunks behind the newest rows.
        self.room = max(1, min(MOST_STEPS, store.ring.chunk // (2 * store.num_envs)))
        self.count = 0
        self._rows = 0
        """How many rows the steps held back will take."""
        self._held: VectorStep | None = None
        self._late: tuple[int, PoolStep] | None = None
        """What was expected and is not copied yet."""
        self._skill = torch.zeros(self.room, store.num_envs, 0)

    def push(self, action: Array, step: PoolStep) -> bool:
        """One step of all environments; whether it ended an episode, which can be drawn from from now on.

        What was seen is copied in `copy_pending`, which must be called before its arrays change.
        """
        assert self._late is None, "the step before was not copied"
        held = self._held or self._arrays(action, step)
        held.action[self.count] = action
        self._late = self.count, step
        over = (step.terminated | step.truncated) & step.valid
        ended = int(np.count_nonzero(over))
        self.count += 1
        self._rows += self.replay.store.num_envs + ended
        if ended or self.count == self.room:
            self.flush()
        return ended > 0

    def copy_pending(self) -> None:
        """Copy what was expected last."""
        self._copy_late()

    def _copy_late(self) -> None:
        # Apart from `copy_pending`, which a benchmark watches, as it does what flushes: it would be timed twice.
        if self._late is not None:
            assert self._held is not None
            (at, step), held, self._late = self._late, self._held, None
            held.reward[at], held.valid[at] = step.reward, step.valid
            held.terminated[at], held.truncated[at] = step.terminated, step.truncated
            held.next_frames[at], held.frames[at] = step.next_obs, step.obs

    def flush(self) -> None:
        """Hand over what is held back."""
        self._copy_late()
        if self.count:
            assert self._held is not None
            self.replay.extend(self._held.each(lambda field: field[: self.count]))
            self.count = self._rows = 0

    def evict(self) -> None:
        """Let draws know which steps are not remembered any more."""
        store, episodes = self.replay.store, self.replay.episodes
        assert episodes is not None
        store.first = store.first_step_after(store.ring.head + self._rows)  # kept: a chunk of steps is passed over once
        episodes.publish(store.first_sampleable_step)

    @property
    def num_sampleable(self) -> int:
        """Transitions that can be drawn, those held back counted with them; to be asked after `evict`."""
        store, episodes = self.replay.store, self.replay.episodes
        if not episodes:
            return 0
        return (
            max(0, store.steps + self.count - self.replay.plan.steps + 1 - store.first_sampleable_step) * store.num_envs
        )

    def _arrays(self, action: Array, step: PoolStep) -> VectorStep:
        def room_for(one: Array) -> Array:
            return np.zeros((self.room, *one.shape), one.dtype)

        self._held = VectorStep(
            action=room_for(action),
            skill=self._skill,
            reward=room_for(step.reward),
            terminated=room_for(step.terminated),
            truncated=room_for(step.truncated),
            valid=room_for(step.valid),
            next_frames=room_for(step.next_obs),
            frames=room_for(step.obs),
        )
        return self._held
