"""The ring of rows, indexed by step and environment, and cut into chunks for checkpoints.

Each step of N environments takes N adjacent rows of the ring, after the rows of the episodes that ended in the step
before. `grid` holds the row of every (step, environment). It and the episodes can be rebuilt from the rows, so only
rows are saved.

The newest N rows are open: their states are known, the actions taken there are not. A chunk is settled, that is, never
changes again, when it holds neither an open row nor one of the step before: a resume that has to restart the
environments truncates the episodes in that last step.
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
    """One step of all environments, each field (N, ...)."""

    action: Array
    skill: Tensor
    reward: Array
    terminated: Array
    truncated: Array
    valid: Array
    next_frames: Array
    """Frames of the true successor states."""
    frames: Array
    """Frames of the states to act in next: the successors, or the first of a new episode."""

    @property
    def ended(self) -> Array:
        """Where an episode ends, for either reason."""
        ended: Array = (self.terminated | self.truncated) & self.valid
        return ended

    def map_fields(self, change: Callable[[Any], Any]) -> VectorStep:
        """The same with `change` applied to every field."""
        return VectorStep(*map(change, self))


class StepStore:
    """The rows of N environments by step, from which windows of `window` steps are drawn."""

    def __init__(
        self, layout: Layout, capacity: int, num_envs: int, stack: int, device: torch.device, window: int = 1
    ) -> None:
        # A smaller ring could overwrite states of the newest stack and window: each step may take two rows of an
        # environment, the second for the state in which an episode ended.
        least = 2 * num_envs * (max(stack, 1) + window + 1)
        if capacity < least:
            raise ConfigError(
                f"agent.capacity: {capacity} transitions are too few for {num_envs} environments and windows of "
                f"{window}. Use --agent.capacity {least} or more, or fewer environments (--pool.num-envs)."
            )
        self.ring = RowRing(layout, capacity, device)
        self.num_envs, self.stack = num_envs, stack
        self.steps = 0
        """Complete steps."""
        self.first = 0
        """The first step whose rows are all still stored."""
        self.span = self.ring.size // num_envs + 2
        self.grid = torch.zeros(self.span, num_envs, dtype=torch.int64, device=device)
        self._first_rows = np.zeros(self.span, dtype=np.int64)
        self._open = np.zeros(num_envs, dtype=np.int64)
        self._chunks: dict[int, Chunk] = {}

    @property
    def first_sampleable_step(self) -> int:
        """The first step whose observations can be rebuilt."""
        first = self.first_step_after(self.ring.head)
        return first + max(self.stack - 1, 0) if first else 0

    def reset(self, frames: Array) -> None:
        """Start an episode in every environment, with these frames (N, *frame)."""
        none = np.zeros(self.num_envs)
        self._index_steps(self.ring.append(frames, none, none.astype(bool))[None])

    def extend(self, steps: VectorStep) -> None:
        """Append T consecutive steps, each field (T, N, ...), the first of them taken in the open rows.

        All at once, because the number of device calls does not depend on T.
        """
        ring, valid = self.ring, steps.valid
        over = steps.ended
        ended, after = self.next_row_indices(over)
        left = np.concatenate([self._open[None], after[:-1]])
        successor = np.where(over, ended, after)
        count = int(over.sum()) + after.size
        frames = np.empty((count, *steps.frames.shape[2:]), steps.frames.dtype)
        back, end = np.zeros(count, dtype=np.int32), np.zeros(count, dtype=bool)
        frames[after - ring.head], frames[ended[over] - ring.head] = steps.frames, steps.next_frames[over]
        back[after - ring.head] = np.where(over | ~valid, 0, after - left)
        back[ended[over] - ring.head], end[ended[over] - ring.head] = (ended - left)[over], True
        ring.append(frames, back, end)
        transitions = {
            "action": steps.action,
            "skill": steps.skill,
            "reward": steps.reward,
            "terminated": steps.terminated & valid,
            "truncated": steps.truncated & valid,
            "valid": valid,
            "ahead": successor - left,
        }
        ring.write(left.ravel(), {name: each.reshape(left.size, *each.shape[2:]) for name, each in transitions.items()})
        self.steps += 1
        self._index_steps(after)

    def next_row_indices(self, over: Array) -> tuple[Array, Array]:
        """Rows of the next T steps, given where they end episodes (T, N).

        Two arrays (T, N): rows of the states in which episodes ended (meaningless elsewhere), and of the states to act
        in next. Within a step the former come first.
        """
        rank = over.cumsum(1)  # (T, N)
        ends = rank[:, -1:]
        starts = self.ring.head + (ends + self.num_envs).cumsum(0) - ends - self.num_envs  # (T, 1)
        return starts + rank - 1, starts + ends + np.arange(self.num_envs)

    def truncate(self, frames: Array) -> None:
        """The environments were restarted in these frames: episodes under way are truncated in their newest states."""
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
        """A number below `slot_count` for every stored (step, environment)."""
        return steps % self.span * self.num_envs + envs

    @property
    def slot_count(self) -> int:
        """The number of (step, environment) pairs there is room for."""
        return self.span * self.num_envs

    def current_obs(self) -> Tensor:
        """The observations of the open rows, (N, *obs), on the ring's device."""
        return self.ring.observations(torch.from_numpy(self._open).to(self.ring.device), self.stack)

    def last_next_obs(self) -> Tensor:
        """The true successor observations of the last step, (N, *obs), also where it ended an episode."""
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
        return int(self._first_rows[step % self.span]) + np.arange(self.num_envs)

    def first_step_after(self, head: int) -> int:
        """The first step whose rows are all stored once `head` rows have been written."""
        oldest, first = self.ring.oldest_at(head), self.first
        while self._first_rows[first % self.span] < oldest:
            first += 1
        return first

    def _index_steps(self, rows: Array) -> None:
        """Index rows (T, N) as the steps from `self.steps` on, the last of which is not complete."""
        self.first = self.first_step_after(self.ring.head)  # before their entries are overwritten
        self._open = rows[-1]
        steps = np.arange(self.steps, self.steps + len(rows)) % self.span
        self.grid[torch.from_numpy(steps).to(self.ring.device)] = torch.from_numpy(rows).to(self.ring.device)
        self._first_rows[steps] = rows[:, 0]
        self.steps += len(rows) - 1

    def load_prefilled(self, head: int, steps: int) -> None:
        """Index rows 0 to `head`, which the caller has written: `steps` complete steps and the open rows."""
        self.ring.head, self.steps, self.first = head, steps, 0
        self._rebuild_index(0)

    def state_dict(self) -> State:
        """Settled chunks, which share the ring's memory, and copies of the rows that may still change."""
        ring, chunk = self.ring, self.ring.chunk
        settled = int(self._first_rows[max(self.steps - 1, self.first) % self.span]) // chunk
        numbers = range(ring.oldest // chunk, max(settled, ring.oldest // chunk))
        kept = {number: self._chunks.get(number) or self._make_chunk(number) for number in numbers}
        self._chunks = kept
        return {
            "head": ring.head,
            "steps": self.steps,
            "first": self.first,
            "first_row": int(self._first_rows[self.first % self.span]),
            "chunks": list(kept.values()),
            "rest": [
                {name: rows.clone() for name, rows in ring.slice(start, stop).items()}
                for start, stop in self._chunk_ranges(numbers.stop * chunk)
            ],
        }

    def load_state_dict(self, state: State) -> None:
        """Restore the state, chunk by chunk."""
        ring, chunk = self.ring, self.ring.chunk
        ring.head, self.steps, self.first = int(state["head"]), int(state["steps"]), int(state["first"])
        self._chunks = {}
        number = ring.oldest // chunk
        for saved in state["chunks"]:
            self._write_rows(number * chunk, saved.load() if isinstance(saved, StoredChunk) else saved)
            self._chunks[number] = self._make_chunk(number)
            if isinstance(saved, StoredChunk):
                self._chunks[number].stored = saved.stored
            number += 1
        for (start, _), rows in zip(self._chunk_ranges(number * chunk), state["rest"], strict=True):
            self._write_rows(start, rows)
        self._rebuild_index(int(state["first_row"]))

    def rebind_storage(self) -> None:
        """Take new views after the ring's memory was replaced: chunks are views into it."""
        self.ring.rebind_storage()
        for number, old in self._chunks.items():
            self._chunks[number] = self._make_chunk(number)
            self._chunks[number].stored = old.stored

    def _make_chunk(self, number: int) -> Chunk:
        first = number * self.ring.chunk
        return Chunk(SERIES, first, self.ring.slice(first, first + self.ring.chunk))

    def _chunk_ranges(self, start: int) -> Iterator[tuple[int, int]]:
        """Ranges of rows from `start` to the newest, split at chunk boundaries."""
        while start < self.ring.head:
            stop = min((start // self.ring.chunk + 1) * self.ring.chunk, self.ring.head)
            yield start, stop
            start = stop

    def _write_rows(self, first: int, rows: State) -> None:
        count = len(rows["back"])
        for name, room in self.ring.slice(first, first + count).items():
            room.copy_(torch.as_tensor(rows[name]))

    def _rebuild_index(self, first_row: int) -> None:
        """Rebuild `grid` from the rows: all that are not ends, N at a time."""
        numbers = torch.arange(first_row, self.ring.head, device=self.ring.device)
        states = numbers[~self.ring.get("end", numbers)].view(-1, self.num_envs)
        steps = torch.arange(self.first, self.steps + 1, device=self.ring.device)
        self.grid[steps % self.span] = states
        self._first_rows[steps.cpu().numpy() % self.span] = states[:, 0].cpu().numpy()
        self._open = states[-1].cpu().numpy()
