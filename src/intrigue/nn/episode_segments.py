"""A rollout cut into episodes: which states precede which, across resets and from one rollout to the next.

The T rows of N environments become L ≥ T places in order of time:

    row t of the batch    ...  s'₃ │ end │ s₄ → s'₄    s'₅  ...
    places                ...  s'₃ │     │ s₄   s'₄    s'₅  ...        s₄: the first state of an episode

The row in which an episode ends belongs to the old episode; the next row starts a new one. Rows that are not valid
leave their places empty. An episode that was under way before the rollout continues with the states remembered of it,
`carried` in number; any other starts with the state before its first valid row, if `include_start` asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from intrigue.types import Transitions


@dataclass(frozen=True, slots=True)
class EpisodeSegments:
    """Places of a rollout's states in order, each (L, N) unless said otherwise."""

    active: Tensor  # bool: there is a state here
    episode: Tensor  # episodes that ended before in this rollout; 0 is the one under way when it began
    earlier: Tensor  # states of the same episode before this one, those carried from earlier rollouts included
    ongoing: Tensor  # bool: a state of the episode still under way after the last row
    num_ended: Tensor  # (N,)  episodes that ended in this rollout; above 0, what was carried is over
    row_places: Tensor  # (T,)  the place of each row's state
    start_places: Tensor  # (S,)  places of first states, where some environment's episode starts
    start_rows: Tensor  # (S,)  the rows that follow them

    @staticmethod
    def from_batch(batch: Transitions, carried: Tensor, *, include_start: bool) -> EpisodeSegments:
        """The segments of a batch, given how many states (N,) are remembered of the episodes under way."""
        ended, valid = batch.ended.long(), batch.valid
        episode = ended.cumsum(0) - ended  # (T, N): ends before the row, so an ending row is of the old episode
        first = valid & (_count_earlier(valid, episode, carried) == 0)
        starts = first.any(1) if include_start else torch.zeros_like(first[:, 0])  # (T,)
        start_rows = starts.nonzero().squeeze(-1)
        rows = torch.arange(len(starts), device=starts.device) + starts.long().cumsum(0)
        start_places = rows[start_rows] - 1
        active = _scatter(rows, start_places, valid, first[start_rows])
        episode = _scatter(rows, start_places, episode, episode[start_rows])
        total = ended.sum(0)  # (N,)
        return EpisodeSegments(
            active=active,
            episode=episode,
            earlier=_count_earlier(active, episode, carried),
            ongoing=active & (episode == total),
            num_ended=total,
            row_places=rows,
            start_places=start_places,
            start_rows=start_rows,
        )

    def updated_lengths(self, carried: Tensor) -> Tensor:
        """States (N,) of the episode under way after the last row."""
        return carried * (self.num_ended == 0) + self.ongoing.sum(0)

    def arrange(self, rows: Tensor, starts: Tensor) -> Tensor:
        """Values (T, N, ...) of the rows' states, and of the states before them where episodes begin: (L, N, ...)."""
        return _scatter(self.row_places, self.start_places, rows, starts[self.start_rows])

    def encode(self, encode: Callable[[Tensor], Tensor], rows: Tensor, starts: Tensor) -> Tensor:
        """Encodings (L, N, ...) of the states: `rows` (T, N, *obs) and, where episodes begin, of `starts` (T, N, *obs).

        Of the first states only the few that have a place are encoded; empty places hold zeros.
        """
        return self._encode(encode, rows, starts, torch.ones_like(self.active))

    def encode_ongoing(self, encode: Callable[[Tensor], Tensor], rows: Tensor, starts: Tensor) -> Tensor | None:
        """The same for the states still `ongoing`, with zeros elsewhere; None if there are none."""
        return self._encode(encode, rows, starts, self.ongoing) if bool(self.ongoing.any()) else None

    def _encode(self, encode: Callable[[Tensor], Tensor], rows: Tensor, starts: Tensor, wanted: Tensor) -> Tensor:
        parts = [(self.row_places, rows), (self.start_places, starts[self.start_rows])]
        # Every row is a state to be scored, if only for its shape; a first state counts where it has a place.
        needed = [wanted[self.row_places], (wanted & self.active)[self.start_places]]
        made = [
            (places, _encoded(encode, states, chosen))
            for (places, states), chosen in zip(parts, needed, strict=True)
            if bool(chosen.any())
        ]
        out = made[0][1].new_zeros(*self.active.shape, *made[0][1].shape[2:])
        for places, encoded in made:
            out[places] = encoded
        return out


def _encoded(encode: Callable[[Tensor], Tensor], states: Tensor, chosen: Tensor) -> Tensor:
    """Encodings of the chosen (T, N) of the states (T, N, *obs), zeros elsewhere."""
    if bool(chosen.all()):
        return encode(states)
    some = encode(states[chosen])  # (B, ...)
    out = some.new_zeros(*chosen.shape, *some.shape[1:])
    out[chosen] = some
    return out


def _scatter(rows: Tensor, start_places: Tensor, of_rows: Tensor, of_starts: Tensor) -> Tensor:
    """Values of rows (T, N, ...) and of first states (S, N, ...) at their places, (T + S, N, ...)."""
    out = of_rows.new_empty(len(rows) + len(start_places), *of_rows.shape[1:])
    out[rows], out[start_places] = of_rows, of_starts
    return out


def _count_earlier(active: Tensor, episode: Tensor, carried: Tensor) -> Tensor:
    """How many active places of the same episode come before each, carried ones included. (L, N)"""
    count = active.long().cumsum(0) - active.long()  # (L, N): active places before, of any episode
    place = torch.arange(len(active), device=active.device).unsqueeze(-1).expand_as(episode)
    turned = torch.ones_like(active)
    turned[1:] = episode[1:] != episode[:-1]
    began = place.where(turned, 0).cummax(0).values  # where the place's episode starts
    return count - count.gather(0, began) + carried * (episode == 0)
