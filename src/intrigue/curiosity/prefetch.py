"""Encodings of a rollout's pictures by a network that never learns, made while the rollout is still under way.

While environments step a GPU has little to do, and what is left of a state does not change any more. Steps are encoded
in pieces of PIECE, in a stream of their own; whoever wants all encodings gets those that are there and, in the same
pieces, the others: how a batch is cut up may decide last bits, when its pieces are computed never does.

Elsewhere than on a GPU nothing is made ahead, and a rollout is one piece.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias, final

import torch
from torch import Tensor

from intrigue.ops.execution import SideStream
from intrigue.ops.precision import exact_float32

PIECE = 8  # steps; of 128 environments 1,024 pictures, enough to fill a GPU and too few to keep actions waiting long

Encode: TypeAlias = Callable[[Tensor], Tensor]


class _Piece(NamedTuple):
    states: Tensor
    """What was encoded. Kept, so that the same memory holds nothing else."""
    encodings: Tensor


@final
class FeaturePrefetcher:
    """The encodings of one rollout's states (T, N, *obs) after another's; `encode` makes (..., D) of (..., *obs)."""

    def __init__(self, devices: tuple[str, ...] = ("cuda",)) -> None:
        self._devices = devices
        self._stream: torch.cuda.Stream | None = None
        self._pieces: list[_Piece] = []

    def look(self, states: Tensor, count: int, encode: Encode) -> None:
        """The first `count` steps of these states are there: encode what can be."""
        if states.device.type not in self._devices:
            return
        while (first := PIECE * len(self._pieces)) + PIECE <= count:
            if self._stream is None and states.is_cuda:
                self._stream = torch.cuda.Stream(states.device)
            piece = states[first : first + PIECE]
            with SideStream(self._stream), torch.no_grad(), exact_float32():
                self._pieces.append(_Piece(piece, encode(piece)))

    def take(self, states: Tensor, encode: Encode) -> Tensor:
        """The encodings (T, N, D) of these states; what was made of others is forgotten.

        To be called without gradients, where float32 is exact.
        """
        if states.device.type not in self._devices:
            return encode(states)
        pieces = dict(enumerate(self._pieces))
        found = []
        for index, part in enumerate(states.split(PIECE)):
            piece = pieces.get(index)
            found.append(piece.encodings if piece is not None and _same(piece.states, part) else encode(part))
        self.forget()
        for each in found:
            if each.is_cuda:
                each.record_stream(torch.cuda.current_stream())  # else free for the other stream while it is read here
        return torch.cat(found)

    def forget(self) -> None:
        """What encodes, or how states are shown to it, has changed; what is under way keeps its memory to its end."""
        SideStream(self._stream).wait()
        self._pieces.clear()


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether both are the same memory, which the first keeps from being used for anything else."""
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape
