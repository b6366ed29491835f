"""Memory per environment that is cleared when its episode ends.

    PerEnvironment   a module whose state has one row per environment, however many the first batch brings
    EpisodicMemory   the states of each environment's episode under way, and the view scoring has of them

What a state at place l of a segments (see `intrigue.nn.episode_segments`) can see, in one computation for all
environments:

    remembered rows    if its episode was under way when the rollout began
    places j < l       of the same episode, where a state stands

and of both only the last `capacity`, so that one rollout of 2T scores what two of T do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from intrigue.nn.episode_segments import EpisodeSegments
from intrigue.nn.knn import CHUNK_ELEMENTS, SLACK

# Rows an episodic memory begins with; it doubles when they are full.
FIRST_ROWS = 64


class PerEnvironment(nn.Module):
    """State with one row per environment. Unsized until `resize` or a state dict says how many there are."""

    def __init__(self) -> None:
        super().__init__()
        self._states: dict[str, bool] = {}

    def add_state(self, name: str, initial: Tensor, *, grows: bool = False) -> None:
        """A buffer (N, *initial.shape) that begins as `initial` everywhere; `grows`: its second axis may change."""
        self._states[name] = grows
        self.register_buffer(name, initial.new_zeros(0, *initial.shape))
        # Not saved, but moved along with the module's device and type.
        self.register_buffer(f"{name}_initial", initial, persistent=False)

    def state(self, name: str, envs: int) -> Tensor:
        """The state of so many environments, without changing anything: as it is, or as it would begin."""
        held: Tensor = getattr(self, name)
        if held.shape[0] == envs:
            return held
        if held.shape[0]:
            raise ValueError(
                f"the reward remembers the episodes of {held.shape[0]} environments, but this batch has {envs}. "
                "Batches must be (T, N, ...) of the same N environments; make a new reward for another number."
            )
        initial: Tensor = getattr(self, f"{name}_initial")
        return initial.expand(envs, *initial.shape)

    def resize(self, envs: int) -> None:
        """Give every state its rows, once."""
        for name in self._states:
            setattr(self, name, self.state(name, envs).clone())

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Take the number of environments (and rows) from what is loaded; torch then checks the rest and copies."""
        for name, grows in self._states.items():
            given, held = state_dict.get(prefix + name), getattr(self, name)
            if isinstance(given, Tensor) and given.dim() == held.dim():
                axes = 2 if grows else 1
                setattr(self, name, held.new_zeros(*given.shape[:axes], *held.shape[axes:]))
        super()._load_from_state_dict(state_dict, prefix, *args)


class EpisodicMemory(PerEnvironment):
    """The last `capacity` states of each environment's episode under way, growing by doubling until then."""

    rows: Tensor  # (N, M, *shape)
    written: Tensor  # (N,)  states of the episode so far; the i-th lies in row i mod M

    def __init__(self, capacity: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.capacity = capacity
        self.add_state("rows", torch.zeros(0, *shape, dtype=dtype), grows=True)
        self.add_state("written", torch.zeros((), dtype=torch.int64))

    def episode_lengths(self, envs: int) -> Tensor:
        """How many states each episode under way has had, (N,)."""
        return self.state("written", envs)

    @torch.no_grad()
    def add(self, segments: EpisodeSegments, entries: Tensor | None) -> None:
        """Forget the episodes that ended and remember the states (L, N, *shape) of those still under way.

        Entries of other places are not looked at; None will do where no state is `ongoing`.
        """
        envs = segments.active.shape[1]
        self.resize(envs)
        lengths = segments.updated_lengths(self.written)
        self._grow(int(lengths.max()))
        if entries is not None:
            # Later states of a long rollout would overwrite its first ones; the order of such writes is not defined.
            kept = segments.ongoing & (segments.earlier >= lengths - self.capacity)
            place, env = kept.nonzero(as_tuple=True)
            self.rows[env, segments.earlier[place, env] % self.rows.shape[1]] = entries[place, env].to(self.rows.dtype)
        self.written = lengths

    def nearest(self, segments: EpisodeSegments, entries: Tensor, k: int) -> Tensor:
        """Squared distances (T, N, k) from each row's entry to the k nearest it can see; infinite where there is none.

        The squared-norm expansion picks a few more than k; their true offsets decide, as in `neighbours`.
        """
        seen = self._candidates(entries)  # (N, C, D)
        center = seen.mean(
            1, keepdim=True
        )  # differences alone matter; without a common offset the expansion rounds less
        centered = seen - center
        norms = centered.square().sum(-1).unsqueeze(1)  # (N, 1, C)
        take = min(k + SLACK, seen.shape[1])
        env = torch.arange(seen.shape[0], device=seen.device).reshape(-1, 1, 1)
        found = []
        for places, visible in self._looks(segments, seen.shape[0] * max(seen.shape[1], take * seen.shape[2])):
            query = entries[places].transpose(0, 1)  # (N, q, D)
            rough = torch.baddbmm(norms, query - center, centered.mT, alpha=-2).masked_fill(~visible, torch.inf)
            index = rough.topk(take, largest=False).indices  # (N, q, take)
            true = (seen[env, index] - query.unsqueeze(2)).square().sum(-1)
            true = true.masked_fill(~visible.gather(-1, index), torch.inf).sort(-1).values[..., :k]
            missing = true.new_full((*true.shape[:2], k - true.shape[2]), torch.inf)
            found.append(torch.cat([true, missing], -1).transpose(0, 1))
        return torch.cat(found)

    def count_equal(self, segments: EpisodeSegments, keys: Tensor) -> Tensor:
        """How many of the states each row can see have the row's own key (T, N); `keys` are (L, N)."""
        seen = self._candidates(keys).unsqueeze(1)  # (N, 1, C)
        looks = self._looks(segments, seen.numel())
        counts = [((seen == keys[places].mT.unsqueeze(2)) & visible).sum(-1).mT for places, visible in looks]
        return torch.cat(counts)

    def _candidates(self, entries: Tensor) -> Tensor:
        """Remembered rows and then the rollout's own entries, (N, M' + L, *shape)."""
        own = entries.transpose(0, 1)
        held = self.state("rows", own.shape[0])[:, : self._held()]
        return torch.cat([held.to(own.dtype), own], 1)

    def _held(self) -> int:
        """Rows in use in the fullest environment."""
        return min(int(self.written.max()), self.rows.shape[1]) if len(self.written) else 0

    def _looks(self, segments: EpisodeSegments, per_row: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Places (q,) of a few rows at a time, and which candidates (N, q, M' + L) each of them can see."""
        envs = segments.active.shape[1]
        written, slot = (
            self.episode_lengths(envs).unsqueeze(-1),
            torch.arange(self._held(), device=segments.active.device),
        )
        # Number of the state in each slot, in the order of its episode; negative where the slot is free.
        number = written - 1 - (written - 1 - slot) % max(1, self.rows.shape[1])  # (N, M')
        active, episode, earlier = (each.mT for each in (segments.active, segments.episode, segments.earlier))  # (N, L)
        order = torch.cat([number, earlier], 1).unsqueeze(1)  # (N, 1, M' + L)
        of = torch.cat([torch.zeros_like(number), episode], 1).unsqueeze(1)
        there = torch.cat([number >= 0, active], 1).unsqueeze(1)
        # Places beyond every remembered row: a place sees those before it.
        place = torch.cat([torch.full_like(slot, -1), torch.arange(active.shape[1], device=slot.device)])
        for places in segments.row_places.split(max(1, CHUNK_ELEMENTS // max(1, per_row))):
            oldest = (earlier[:, places] - self.capacity).unsqueeze(-1)  # (N, q, 1)
            same = of == episode[:, places].unsqueeze(-1)
            yield places, there & same & (place < places.unsqueeze(-1)) & (order >= oldest)

    def _grow(self, wanted: int) -> None:
        """Double the rows until they hold what is wanted, or the capacity. Nothing has wrapped around before that."""
        size = self.rows.shape[1]
        while size < min(wanted, self.capacity):
            size = min(self.capacity, max(FIRST_ROWS, 2 * size))
        if size > self.rows.shape[1]:
            more = self.rows.new_zeros(self.rows.shape[0], size - self.rows.shape[1], *self.rows.shape[2:])
            self.rows = torch.cat([self.rows, more], 1)
