"""Encodings of a rollout's pictures by a network that never learns, made while the rollout is still under way.

While environments step a GPU has little to do, and what is left of a state does not change any more. Steps are encoded
in pieces of PIECE, in a stream of their own; whoever wants all encodings gets those that are there and, in the same
pieces, the others: how a batch is cut up may decide last bits, when its pieces are computed never does.

Elsewhere than on a GPU nothing is made ahead, and a rollout is one piece.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias, final

import torch
from torch import Tensor

from intrigue.precision import exact_float32

PIECE = 8  # steps; of 128 environments 1,024 pictures, enough to fill a GPU and too few to keep actions waiting long


Encode: TypeAlias = Callable[[Tensor], Tensor]


class _Piece(NamedTuple):
    states: Tensor
    """What was encoded. Kept, so that the same memory holds nothing else."""
    encodings: Tensor


@final
class EncodingsAhead:
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
            piece = states[first : first + PIECE]
            with self._beside(piece):
                self._pieces.append(_Piece(piece, _exactly(encode, piece)))

    def take(self, states: Tensor, encode: Encode) -> Tensor:
        """The encodings (T, N, D) of these states; what was made of others is forgotten."""
        pieces, self._pieces = self._pieces, []
        if states.device.type not in self._devices:
            return _exactly(encode, states)
        found = []
        for piece, part in itertools.zip_longest(pieces, states.split(PIECE)):
            there = piece is not None and part is not None and _is(piece.states, part)
            if part is not None:
                found.append(piece.encodings if there else _exactly(encode, part))
        if self._stream is not None:
            now = torch.cuda.current_stream()
            now.wait_stream(self._stream)
            for each in found:
                each.record_stream(now)  # else its memory would be free for the other stream while it is copied here
        return torch.cat(found)

    @contextlib.contextmanager
    def _beside(self, states: Tensor) -> Iterator[None]:
        """In a stream of its own, when all that was asked for so far is done."""
        if not states.is_cuda:
            yield
            return
        self._stream = self._stream or torch.cuda.Stream(states.device)
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            yield

    def forget(self) -> None:
        """What encodes, or how states are shown to it, has changed."""
        self._pieces.clear()


@torch.no_grad()
def _exactly(encode: Encode, states: Tensor) -> Tensor:
    with exact_float32():
        return encode(states)


def _is(one: Tensor, other: Tensor) -> bool:
    """Whether both are the same memory, which the first keeps from being used for anything else."""
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape
