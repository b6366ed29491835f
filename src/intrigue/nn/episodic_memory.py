"""Memory per environment, cleared when its episode ends.

    PerEnvironment   a module whose state has one row per environment, however many the first batch brings
    EpisodicMemory   the states of each environment's current episode, and which each state is compared with

The state in place l (see `intrigue.nn.episode_segments`) is compared with, in one computation for all environments:

    remembered rows    if its episode was under way when the rollout began
    places j < l       of the same episode, unless empty

and of both only the last `capacity`, so that one rollout of 2T steps gives the scores of two of T.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from intrigue.nn.episode_segments import EpisodeSegments
from intrigue.nn.knn import CHUNK_ELEMENTS, SLACK

# Initial rows of an episodic memory; doubled when full.
FIRST_ROWS = 64


class PerEnvironment(nn.Module):
    """State with one row per environment; empty until `resize` or a state dict gives the number of environments."""

    def __init__(self) -> None:
        super().__init__()
        self._states: dict[str, bool] = {}

    def add_state(self, name: str, initial: Tensor, *, grows: bool = False) -> None:
        """Add a buffer (N, *initial.shape) whose rows start as `initial`; `grows`: its second axis may change."""
        self._states[name] = grows
        self.register_buffer(name, initial.new_zeros(0, *initial.shape))
        # Not saved, but moved with the module's device and type.
        self.register_buffer(f"{name}_initial", initial, persistent=False)

    def state(self, name: str, envs: int) -> Tensor:
        """The state for `envs` environments, as it is or initial; changes nothing."""
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
        """Allocate the rows of every state, once."""
        for name in self._states:
            setattr(self, name, self.state(name, envs).clone())

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Resize to the loaded number of environments (and rows); torch then checks the rest and copies."""
        for name, grows in self._states.items():
            loaded, held = state_dict.get(prefix + name), getattr(self, name)
            if isinstance(loaded, Tensor) and loaded.dim() == held.dim():
                axes = 2 if grows else 1
                setattr(self, name, held.new_zeros(*loaded.shape[:axes], *held.shape[axes:]))
        super()._load_from_state_dict(state_dict, prefix, *args)


class EpisodicMemory(PerEnvironment):
    """The last `capacity` states of each environment's current episode; grows by doubling until then."""

    rows: Tensor  # (N, M, *shape)
    written: Tensor  # (N,)  states of the episode so far; the i-th lies in row i mod M

    def __init__(self, capacity: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.capacity = capacity
        self.add_state("rows", torch.zeros(0, *shape, dtype=dtype), grows=True)
        self.add_state("written", torch.zeros((), dtype=torch.int64))

    def episode_lengths(self, envs: int) -> Tensor:
        """States of each current episode so far, (N,)."""
        return self.state("written", envs)

    @torch.no_grad()
    def add(self, segments: EpisodeSegments, entries: Tensor | None) -> None:
        """Clear the episodes that ended and store the states (L, N, *shape) of those still under way.

        Entries of other places are not read; None is accepted where no state is `ongoing`.
        """
        envs = segments.active.shape[1]
        self.resize(envs)
        lengths = segments.updated_lengths(self.written)
        self._grow(int(lengths.max()))
        if entries is not None:
            # Keep only the last `capacity`: the order of writes to one row is undefined.
            kept = segments.ongoing & (segments.earlier >= lengths - self.capacity)
            place, env = kept.nonzero(as_tuple=True)
            self.rows[env, segments.earlier[place, env] % self.rows.shape[1]] = entries[place, env].to(self.rows.dtype)
        self.written = lengths

    def nearest(self, segments: EpisodeSegments, entries: Tensor, k: int) -> Tensor:
        """Squared distances (T, N, k) from each row's entry to its k nearest visible entries; infinite if missing.

        The squared-norm expansion preselects a few more than k; exact differences decide, as in `knn`.
        """
        seen = self._candidates(entries)  # (N, C, D)
        center = seen.mean(
            1, keepdim=True
        )  # distances do not depend on a common offset; without it the expansion rounds less
        centered = seen - center
        norms = centered.square().sum(-1).unsqueeze(1)  # (N, 1, C)
        take = min(k + SLACK, seen.shape[1])
        env = torch.arange(seen.shape[0], device=seen.device).reshape(-1, 1, 1)
        nearest = []
        for places, visible in self._visible_chunks(segments, seen.shape[0] * max(seen.shape[1], take * seen.shape[2])):
            query = entries[places].transpose(0, 1)  # (N, q, D)
            rough = torch.baddbmm(norms, query - center, centered.mT, alpha=-2).masked_fill(~visible, torch.inf)
            index = rough.topk(take, largest=False).indices  # (N, q, take)
            exact = (seen[env, index] - query.unsqueeze(2)).square().sum(-1)
            exact = exact.masked_fill(~visible.gather(-1, index), torch.inf).sort(-1).values[..., :k]
            missing = exact.new_full((*exact.shape[:2], k - exact.shape[2]), torch.inf)
            nearest.append(torch.cat([exact, missing], -1).transpose(0, 1))
        return torch.cat(nearest)

    def count_equal(self, segments: EpisodeSegments, keys: Tensor) -> Tensor:
        """How many of the states visible to each row have the row's own key (T, N); `keys` are (L, N)."""
        seen = self._candidates(keys).unsqueeze(1)  # (N, 1, C)
        chunks = self._visible_chunks(segments, seen.numel())
        counts = [((seen == keys[places].mT.unsqueeze(2)) & visible).sum(-1).mT for places, visible in chunks]
        return torch.cat(counts)

    def _candidates(self, entries: Tensor) -> Tensor:
        """Remembered rows, then the rollout's own entries, (N, M' + L, *shape)."""
        own = entries.transpose(0, 1)
        held = self.state("rows", own.shape[0])[:, : self._held()]
        return torch.cat([held.to(own.dtype), own], 1)

    def _held(self) -> int:
        """Rows used by the longest current episode."""
        return min(int(self.written.max()), self.rows.shape[1]) if len(self.written) else 0

    def _visible_chunks(self, segments: EpisodeSegments, per_row: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Chunks of rows' places (q,), and which candidates (N, q, M' + L) are visible to each."""
        envs = segments.active.shape[1]
        written, slot = (
            self.episode_lengths(envs).unsqueeze(-1),
            torch.arange(self._held(), device=segments.active.device),
        )
        # Index within its episode of the state in each slot; negative in free slots.
        number = written - 1 - (written - 1 - slot) % max(1, self.rows.shape[1])  # (N, M')
        active, episode, earlier = (each.mT for each in (segments.active, segments.episode, segments.earlier))  # (N, L)
        order = torch.cat([number, earlier], 1).unsqueeze(1)  # (N, 1, M' + L)
        episode_of = torch.cat([torch.zeros_like(number), episode], 1).unsqueeze(1)
        present = torch.cat([number >= 0, active], 1).unsqueeze(1)
        # Remembered rows come before every place.
        place = torch.cat([torch.full_like(slot, -1), torch.arange(active.shape[1], device=slot.device)])
        for places in segments.row_places.split(max(1, CHUNK_ELEMENTS // max(1, per_row))):
            oldest = (earlier[:, places] - self.capacity).unsqueeze(-1)  # (N, q, 1)
            same = episode_of == episode[:, places].unsqueeze(-1)
            yield places, present & same & (place < places.unsqueeze(-1)) & (order >= oldest)

    def _grow(self, wanted: int) -> None:
        """Double the rows up to `wanted` or the capacity. Before the capacity is reached nothing has wrapped around."""
        size = self.rows.shape[1]
        while size < min(wanted, self.capacity):
            size = min(self.capacity, max(FIRST_ROWS, 2 * size))
        if size > self.rows.shape[1]:
            more = self.rows.new_zeros(self.rows.shape[0], size - self.rows.shape[1], *self.rows.shape[2:])
            self.rows = torch.cat([self.rows, more], 1)
