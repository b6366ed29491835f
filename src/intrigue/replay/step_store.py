"""Rows as steps of N environments that step together, and as chunks that a checkpoint can store.

Step t left N rows, one of each environment, side by side in the ring and after the rows in which episodes ended just
before. `grid` tells the row of every (step, environment); it and the episodes can be read off the rows, so only rows
are saved.

The newest N rows are open: their states are known, what is done there is not yet. A chunk is settled, and its content
will never change, when neither an open row nor one of the step before lies in it: should the environments have to begin
anew after a resume, the transitions of that last step are cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from intrigue.errors import ConfigError
from intrigue.replay.ring import Layout, RowRing
from intrigue.spaces import Array
from intrigue.state import Chunk, State, StoredChunk

SERIES = "replay"


class VectorStep(NamedTuple):
    """One step of every environment: what was done, and what came of it, each (N, ...)."""

    action: Array
    skill: Tensor
    reward: Array
    terminated: Array
    truncated: Array
    valid: Array
    next_frames: Array
    """The states it truly led to, as frames."""
    frames: Array
    """The states to go on from: those, or the first of a new episode."""

    def each(self, change: Callable[[Any], Any]) -> VectorStep:
        """The same with every field changed."""
        return VectorStep(*map(change, self))


class StepStore:
    """The rows of N environments, step by step; windows of `window` steps are to be drawn from them."""

    def __init__(
        self, layout: Layout, capacity: int, num_envs: int, stack: int, device: torch.device, window: int = 1
    ) -> None:
        # Below this the ring could come round to states that are still needed for the newest stack and window: each
        # step may take two rows of an environment, the second for the state an episode ended in.
        least = 2 * num_envs * (max(stack, 1) + window + 1)
        if capacity < least:
            raise ConfigError(
                f"agent.capacity: {capacity} transitions are too few for {num_envs} environments and windows of "
                f"{window}. Use --agent.capacity {least} or more, or fewer environments (--pool.num-envs)."
            )
        self.ring = RowRing(layout, capacity, device)
        self.num_envs, self.stack = num_envs, stack
        self.steps = 0
        """Steps that are complete."""
        self.first = 0
        """The first step all of whose rows are remembered."""
        self.span = self.ring.size // num_envs + 2
        self.grid = torch.zeros(self.span, num_envs, dtype=torch.int64, device=device)
        self._begins = np.zeros(self.span, dtype=np.int64)
        self._open = np.zeros(num_envs, dtype=np.int64)
        self._chunks: dict[int, Chunk] = {}

    @property
    def first_sampleable_step(self) -> int:
        """The first step whose observations can be rebuilt."""
        first = self.first_step_after(self.ring.head)
        return first + max(self.stack - 1, 0) if first else 0

    def reset(self, frames: Array) -> None:
        """New episodes everywhere, in these states (N, *frame)."""
        none = np.zeros(self.num_envs)
        self._place(self.ring.append(frames, none, none.astype(bool))[None])

    def extend(self, taken: VectorStep) -> None:
        """T steps in a row, each field (T, N, ...), the first of them taken from the open rows.

        In one piece, because a device is asked as often for a thousand rows as for one.
        """
        ring, valid = self.ring, taken.valid
        over = (taken.terminated | taken.truncated) & valid
        ended, after = self.next_row_indices(over)
        left = np.concatenate([self._open[None], after[:-1]])
        successor = np.where(over, ended, after)
        count = int(over.sum()) + after.size
        frames = np.empty((count, *taken.frames.shape[2:]), taken.frames.dtype)
        back, end = np.zeros(count, dtype=np.int32), np.zeros(count, dtype=bool)
        frames[after - ring.head], frames[ended[over] - ring.head] = taken.frames, taken.next_frames[over]
        back[after - ring.head] = np.where(over | ~valid, 0, after - left)
        back[ended[over] - ring.head], end[ended[over] - ring.head] = (ended - left)[over], True
        ring.append(frames, back, end)
        transitions = {
            "action": taken.action,
            "skill": taken.skill,
            "reward": taken.reward,
            "terminated": taken.terminated & valid,
            "truncated": taken.truncated & valid,
            "valid": valid,
            "ahead": successor - left,
        }
        ring.write(left.ravel(), {name: each.reshape(left.size, *each.shape[2:]) for name, each in transitions.items()})
        self.steps += 1
        self._place(after)

    def next_row_indices(self, over: Array) -> tuple[Array, Array]:
        """Which rows the next T steps will get, given where they end episodes (T, N).

        (T, N) each: of the states that episodes ended in (meaningless elsewhere), and of the states to go on from. A
        step's ends come first.
        """
        rank = over.cumsum(1)  # (T, N)
        ends = rank[:, -1:]
        begins = self.ring.head + (ends + self.num_envs).cumsum(0) - ends - self.num_envs  # (T, 1)
        return begins + rank - 1, begins + ends + np.arange(self.num_envs)

    def truncate(self, frames: Array) -> None:
        """The environments began anew, in these states: what was under way ends in the states it had reached."""
        if self.steps:
            last = self._rows_of(self.steps - 1)
            going = ~self.ring.get("terminated", torch.from_numpy(last).to(self.ring.device))
            valid = self.ring.get("valid", torch.from_numpy(last).to(self.ring.device))
            self.ring.write(last, {"truncated": going & valid})
        self.ring.write(self._open, {"end": np.ones(self.num_envs, dtype=bool)})
        self.reset(frames)

    def rows(self, steps: Tensor, envs: Tensor) -> Tensor:
        """The rows of these steps and environments."""
        return self.grid[steps % self.span, envs]

    def slot_index(self, steps: Tensor, envs: Tensor) -> Tensor:
        """A number below `slot_count` for every remembered (step, environment)."""
        return steps % self.span * self.num_envs + envs

    @property
    def slot_count(self) -> int:
        """How many (step, environment) there is room for."""
        return self.span * self.num_envs

    def current_obs(self) -> Tensor:
        """The observations of the open rows, (N, *obs), on the ring's device."""
        return self.ring.observations(torch.from_numpy(self._open).to(self.ring.device), self.stack)

    def last_next_obs(self) -> Tensor:
        """The observations the last step led to, (N, *obs), also where it ended an episode."""
        last = torch.from_numpy(self._rows_of(self.steps - 1)).to(self.ring.device)
        return self.ring.observations(self.ring.after(last), self.stack)

    def episode_ends(self, first: int, last: int) -> tuple[Array, Array]:
        """Where episodes ended and where rows were valid in steps `first` to `last`, (steps, N) each."""
        rows = self.rows(torch.arange(first, last, device=self.ring.device).unsqueeze(-1), self._envs())
        over = self.ring.get("terminated", rows) | self.ring.get("truncated", rows)
        return over.cpu().numpy(), self.ring.get("valid", rows).cpu().numpy()

    def _envs(self) -> Tensor:
        return torch.arange(self.num_envs, device=self.ring.device)

    def _rows_of(self, step: int) -> Array:
        return int(self._begins[step % self.span]) + np.arange(self.num_envs)

    def first_step_after(self, head: int) -> int:
        """The first step all of whose rows are remembered when `head` rows have been written."""
        oldest, first = self.ring.oldest_at(head), self.first
        while self._begins[first % self.span] < oldest:
            first += 1
        return first

    def _place(self, rows: Array) -> None:
        """These rows (T, N) are of the steps from `self.steps` on, the last of which is under way."""
        self.first = self.first_step_after(self.ring.head)  # before their places are taken
        self._open = rows[-1]
        steps = np.arange(self.steps, self.steps + len(rows)) % self.span
        self.grid[torch.from_numpy(steps).to(self.ring.device)] = torch.from_numpy(rows).to(self.ring.device)
        self._begins[steps] = rows[:, 0]
        self.steps += len(rows) - 1

    def load_prefilled(self, head: int, steps: int) -> None:
        """Rows 0 to `head` were written from outside: those of `steps` steps, and the open ones."""
        self.ring.head, self.steps, self.first = head, steps, 0
        self._rebuild_index(0)

    def state_dict(self) -> State:
        """Settled chunks, which share the ring's memory, and copies of the rows that may still change."""
        ring, chunk = self.ring, self.ring.chunk
        settled = int(self._begins[max(self.steps - 1, self.first) % self.span]) // chunk
        numbers = range(ring.oldest // chunk, max(settled, ring.oldest // chunk))
        kept = {number: self._chunks.get(number) or self._chunk(number) for number in numbers}
        self._chunks = kept
        return {
            "head": ring.head,
            "steps": self.steps,
            "first": self.first,
            "first_row": int(self._begins[self.first % self.span]),
            "chunks": list(kept.values()),
            "rest": [
                {name: rows.clone() for name, rows in ring.slice(start, stop).items()}
                for start, stop in self._pieces(numbers.stop * chunk)
            ],
        }

    def load_state_dict(self, state: State) -> None:
        """Put back what `state_dict` gave, chunk by chunk."""
        ring, chunk = self.ring, self.ring.chunk
        ring.head, self.steps, self.first = int(state["head"]), int(state["steps"]), int(state["first"])
        self._chunks = {}
        number = ring.oldest // chunk
        for given in state["chunks"]:
            self._fill(number * chunk, given.load() if isinstance(given, StoredChunk) else given)
            self._chunks[number] = self._chunk(number)
            if isinstance(given, StoredChunk):
                self._chunks[number].stored = given.stored
            number += 1
        for (start, _), rows in zip(self._pieces(number * chunk), state["rest"], strict=True):
            self._fill(start, rows)
        self._rebuild_index(int(state["first_row"]))

    def rebind_storage(self) -> None:
        """To be said when the ring has got other memory: chunks are views into it."""
        self.ring.rebind_storage()
        for number, old in self._chunks.items():
            self._chunks[number] = self._chunk(number)
            self._chunks[number].stored = old.stored

    def _chunk(self, number: int) -> Chunk:
        first = number * self.ring.chunk
        return Chunk(SERIES, first, self.ring.slice(first, first + self.ring.chunk))

    def _pieces(self, start: int) -> Iterator[tuple[int, int]]:
        """The rows from `start` to the newest, cut where chunks begin."""
        while start < self.ring.head:
            stop = min((start // self.ring.chunk + 1) * self.ring.chunk, self.ring.head)
            yield start, stop
            start = stop

    def _fill(self, first: int, rows: State) -> None:
        count = len(rows["back"])
        for name, room in self.ring.slice(first, first + count).items():
            room.copy_(torch.as_tensor(rows[name]))

    def _rebuild_index(self, first_row: int) -> None:
        """Find the rows of every step again: all that are not ends, N by N."""
        numbers = torch.arange(first_row, self.ring.head, device=self.ring.device)
        states = numbers[~self.ring.get("end", numbers)].view(-1, self.num_envs)
        steps = torch.arange(self.first, self.steps + 1, device=self.ring.device)
        self.grid[steps % self.span] = states
        self._begins[steps.cpu().numpy() % self.span] = states[:, 0].cpu().numpy()
        self._open = states[-1].cpu().numpy()
