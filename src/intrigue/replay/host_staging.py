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
from intrigue.replay.buffer import Replay
from intrigue.replay.step_store import Taken
from intrigue.spaces import Array

MOST_STEPS = 1024  # held back at a time: one episode of URLB's domains


@final
class Stage:
    """The newest steps of one replay's environments, without skills."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        keep = replay.keep
        # Never more than a chunk, so that what the ring holds stays whole chunks behind the newest rows.
        self.room = max(1, min(MOST_STEPS, keep.ring.chunk // (2 * keep.num_envs)))
        self.count = 0
        self._rows = 0
        """How many rows the steps held back will take."""
        self._held: Taken | None = None
        self._late: tuple[int, PoolStep] | None = None
        """What was expected and is not copied yet."""
        self._skill = torch.zeros(self.room, keep.num_envs, 0)

    def expect(self, action: Array, step: PoolStep) -> bool:
        """One step of all environments; whether it ended an episode, which can be drawn from from now on.

        What was seen is copied in `catch_up`, which must be called before its arrays change.
        """
        assert self._late is None, "the step before was not copied"
        held = self._held or self._arrays(action, step)
        held.action[self.count] = action
        self._late = self.count, step
        over = (step.terminated | step.truncated) & step.valid
        ended = int(np.count_nonzero(over))
        self.count += 1
        self._rows += self.replay.keep.num_envs + ended
        if ended or self.count == self.room:
            self.flush()
        return ended > 0

    def catch_up(self) -> None:
        """Copy what was expected last."""
        self._copy_late()

    def _copy_late(self) -> None:
        # Apart from `catch_up`, which a benchmark watches, as it does what flushes: it would be timed twice.
        if self._late is not None:
            assert self._held is not None
            (at, step), held, self._late = self._late, self._held, None
            held.reward[at], held.valid[at] = step.reward, step.valid
            held.terminated[at], held.truncated[at] = step.terminated, step.truncated
            held.reached[at], held.frames[at] = step.next_obs, step.obs

    def flush(self) -> None:
        """Hand over what is held back."""
        self._copy_late()
        if self.count:
            assert self._held is not None
            self.replay.extend(self._held.each(lambda field: field[: self.count]))
            self.count = self._rows = 0

    def forget(self) -> None:
        """Let draws know which steps are not remembered any more."""
        keep, episodes = self.replay.keep, self.replay.episodes
        assert episodes is not None
        keep.first = keep.first_at(keep.ring.head + self._rows)  # kept: a chunk of steps is passed over once
        episodes.show(keep.low)

    @property
    def drawable(self) -> int:
        """Transitions that can be drawn, those held back counted with them; to be asked after `forget`."""
        keep, episodes = self.replay.keep, self.replay.episodes
        if not episodes:
            return 0
        return max(0, keep.steps + self.count - self.replay.plan.steps + 1 - keep.low) * keep.num_envs

    def _arrays(self, action: Array, step: PoolStep) -> Taken:
        def room_for(one: Array) -> Array:
            return np.zeros((self.room, *one.shape), one.dtype)

        self._held = Taken(
            action=room_for(action),
            skill=self._skill,
            reward=room_for(step.reward),
            terminated=room_for(step.terminated),
            truncated=room_for(step.truncated),
            valid=room_for(step.valid),
            reached=room_for(step.next_obs),
            frames=room_for(step.obs),
        )
        return self._held
