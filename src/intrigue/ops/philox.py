"""The same draw again and again, of every seed by its own generator, in one kernel where all are on a GPU.

    dice = Dice(generators, (2, 1024), "uniform")       generators: one for each seed
    dice.take_up()                                      before the first roll, and before it is captured
    dice.roll()                                         (S, 2, 1024): the numbers a lone run would draw
    dice.put_down()                                     the generators stand where they would stand then

A captured graph that draws from a generator is told its seed and offset with two kernels before every replay: 12 µs for
two generators, 95 for sixteen (H200). Here both lie on the GPU and move on there; whoever else draws from a generator
or looks at its state does so after `put_down`, which waits for the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

import torch
from torch import Generator, Tensor

from intrigue.ops.triton_support import triton_works
from intrigue.rng import Kind, draw_rows

DTYPES = {"uniform": torch.float64, "normal": torch.float32}


@final
class Dice:
    """Draws of one shape and kind for S seeds."""

    def __init__(self, generators: Sequence[Generator], shape: Sequence[int], kind: Kind) -> None:
        self._generators, self._shape, self._kind = tuple(generators), tuple(shape), kind
        self._device = generators[0].device
        self._states: Tensor | None = None
        if self._device.type == "cuda" and triton_works() and torch.Size(shape).numel() <= _threads(self._device):
            self._states = torch.zeros(len(generators), 2, dtype=torch.int64, device=self._device)
        self._taken = False

    @property
    def registered(self) -> tuple[Generator, ...]:
        """What a captured graph must be told of."""
        return self._generators if self._states is None else ()

    def changes(self) -> Iterator[Tensor]:
        """All that a roll writes to, generators left out."""
        if self._states is not None:
            yield self._states

    def take_up(self) -> None:
        """From here on numbers go on from where the generators stand; nothing if they are taken up already."""
        if self._states is not None and not self._taken:
            found = [(_signed(each.initial_seed()), each.get_offset()) for each in self._generators]
            self._states.copy_(torch.tensor(found))
            self._taken = True

    def put_down(self) -> None:
        """Let the generators stand where they would if they had drawn. Waits for the device."""
        if self._states is not None and self._taken:
            for generator, (_, offset) in zip(self._generators, self._states.tolist(), strict=True):
                generator.set_offset(offset)
            self._taken = False

    def roll(self) -> Tensor:
        """The next numbers, (S, *shape)."""
        dtype = DTYPES[self._kind]
        if self._states is None:
            return draw_rows(self._kind, self._shape, self._generators, dtype)
        assert self._taken, "dice must be taken up before they are rolled"
        from intrigue.ops import philox_kernel  # Triton is optional, and slow to import.

        out = torch.empty(len(self._generators), *self._shape, dtype=dtype, device=self._device)
        with torch.cuda.device(self._device):
            philox_kernel.roll(self._states, out, self._kind == "normal")
        return out


def _threads(device: torch.device) -> int:
    """Up to how many numbers of a draw each has a thread of its own."""
    about = torch.cuda.get_device_properties(device)
    return int(about.multi_processor_count) * int(about.max_threads_per_multi_processor)


def _signed(seed: int) -> int:
    """64 bits as int64 has them."""
    return seed - (1 << 64) if seed >= 1 << 63 else seed
