"""The states of a rollout as episodes: who stood before whom, across resets and from one rollout to the next.

A rollout of T rows and N environments becomes a trail of L ≥ T places:

    row t of the batch            ...  s'₃ │ end │ s₄ → s'₄    s'₅  ...
    its places on the trail       ...  s'₃ │     │ s₄   s'₄    s'₅  ...        s₄: the state an episode begins with

The row where an episode ends belongs to the old episode; the next row begins a new one. Rows that are not valid leave
their places empty. An episode that was under way before the rollout goes on with the states remembered of it, whose
number is `carried`; any other begins with the state its first valid row left, if `begin` asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from intrigue.types import Transitions


@dataclass(frozen=True, slots=True)
class Trail:
    """Places of a rollout's states in order, each (L, N) unless said otherwise."""

    active: Tensor  # bool: a state stands here
    episode: Tensor  # episodes that ended before in this rollout; 0 is the one under way when it began
    earlier: Tensor  # states of the same episode before this one, those carried from earlier rollouts included
    going: Tensor  # bool: a state of the episode still under way after the last row
    episodes: Tensor  # (N,)  episodes that ended in this rollout; above 0, what was carried is over
    rows: Tensor  # (T,)  the place of each row's state
    begins: Tensor  # (S,)  the places where some environment's episode begins
    times: Tensor  # (S,)  the rows these precede

    @staticmethod
    def of(batch: Transitions, carried: Tensor, *, begin: bool) -> Trail:
        """The trail of a batch, given how many states (N,) are remembered of the episodes under way."""
        ended, valid = batch.ended.long(), batch.valid
        episode = ended.cumsum(0) - ended  # (T, N): ends before the row, so an ending row is of the old episode
        first = valid & (_earlier(valid, episode, carried) == 0)
        starts = first.any(1) if begin else torch.zeros_like(first[:, 0])  # (T,)
        times = starts.nonzero().squeeze(-1)
        rows = torch.arange(len(starts), device=starts.device) + starts.long().cumsum(0)
        begins = rows[times] - 1
        active = _lay(rows, begins, valid, first[times])
        episode = _lay(rows, begins, episode, episode[times])
        total = ended.sum(0)  # (N,)
        return Trail(
            active=active,
            episode=episode,
            earlier=_earlier(active, episode, carried),
            going=active & (episode == total),
            episodes=total,
            rows=rows,
            begins=begins,
            times=times,
        )

    def lengths(self, carried: Tensor) -> Tensor:
        """States (N,) of the episode under way after the last row."""
        return carried * (self.episodes == 0) + self.going.sum(0)

    def lay(self, rows: Tensor, begun: Tensor) -> Tensor:
        """Values (T, N, ...) of the rows' states, and of the states before them where episodes begin: (L, N, ...)."""
        return _lay(self.rows, self.begins, rows, begun[self.times])

    def encode(self, encode: Callable[[Tensor], Tensor], rows: Tensor, begun: Tensor) -> Tensor:
        """Encodings (L, N, ...) of the states: `rows` (T, N, *obs) and, where episodes begin, of `begun` (T, N, *obs).

        Of the begun states only the few that stand on the trail are encoded; places left empty hold zeros.
        """
        return self._encode(encode, rows, begun, torch.ones_like(self.active))

    def encode_going(self, encode: Callable[[Tensor], Tensor], rows: Tensor, begun: Tensor) -> Tensor | None:
        """The same with zeros for all but the states still `going`, which alone are encoded; None if there are none."""
        return self._encode(encode, rows, begun, self.going) if bool(self.going.any()) else None

    def _encode(self, encode: Callable[[Tensor], Tensor], rows: Tensor, begun: Tensor, wanted: Tensor) -> Tensor:
        parts = [(self.rows, rows), (self.begins, begun[self.times])]
        # Every row is a state to be scored, if only for its shape; a beginning counts where it stands on the trail.
        needed = [wanted[self.rows], (wanted & self.active)[self.begins]]
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


def _lay(rows: Tensor, begins: Tensor, of_rows: Tensor, of_begins: Tensor) -> Tensor:
    """Values of rows (T, N, ...) and of beginnings (S, N, ...) at their places, (T + S, N, ...)."""
    out = of_rows.new_empty(len(rows) + len(begins), *of_rows.shape[1:])
    out[rows], out[begins] = of_rows, of_begins
    return out


def _earlier(active: Tensor, episode: Tensor, carried: Tensor) -> Tensor:
    """How many active places of the same episode come before each, carried ones included. (L, N)"""
    count = active.long().cumsum(0) - active.long()  # (L, N): active places before, of any episode
    place = torch.arange(len(active), device=active.device).unsqueeze(-1).expand_as(episode)
    turned = torch.ones_like(active)
    turned[1:] = episode[1:] != episode[:-1]
    began = place.where(turned, 0).cummax(0).values  # where the place's episode begins
    return count - count.gather(0, began) + carried * (episode == 0)
