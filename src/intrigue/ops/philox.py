"""Repeated draws of one shape for S seeds, each from its own generator, in one kernel if all are on a GPU.

    rng = DeviceRng(generators, (2, 1024), "uniform")   generators: one per seed
    rng.load()                                          before the first draw, and before it is captured
    rng.draw()                                          (S, 2, 1024): the numbers each seed would draw alone
    rng.store()                                         the generators are where they would be then

A captured graph that draws from generators sets their seeds and offsets with two kernels each before every replay: 12
µs for two generators, 95 for sixteen (H200). Here seeds and offsets are kept, and advanced, on the GPU. Others may draw
from a generator or read its state only after `store`, which waits for the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

import torch
from torch import Generator, Tensor

from intrigue.ops.triton_support import triton_available
from intrigue.rng import Kind, draw_rows

DTYPES = {"uniform": torch.float64, "normal": torch.float32}


@final
class DeviceRng:
    """Draws of one shape and kind for S seeds."""

    def __init__(self, generators: Sequence[Generator], shape: Sequence[int], kind: Kind) -> None:
        self._generators, self._shape, self._kind = tuple(generators), tuple(shape), kind
        self._device = generators[0].device
        self._states: Tensor | None = None
        fits = self._device.type == "cuda" and triton_available()
        if fits and torch.Size(shape).numel() <= _max_threads(self._device):
            self._states = torch.zeros(len(generators), 2, dtype=torch.int64, device=self._device)
        self._loaded = False

    @property
    def graph_generators(self) -> tuple[Generator, ...]:
        """The generators that a CUDA graph of a draw must register."""
        return self._generators if self._states is None else ()

    def mutated_tensors(self) -> Iterator[Tensor]:
        """All tensors that a draw writes to."""
        if self._states is not None:
            yield self._states

    def load(self) -> None:
        """Copy the generators' states to the device, unless they are there already."""
        if self._states is not None and not self._loaded:
            states = [(_as_int64(each.initial_seed()), each.get_offset()) for each in self._generators]
            self._states.copy_(torch.tensor(states))
            self._loaded = True

    def store(self) -> None:
        """Advance the generators to where they would be if they had drawn. Waits for the device."""
        if self._states is not None and self._loaded:
            for generator, (_, offset) in zip(self._generators, self._states.tolist(), strict=True):
                generator.set_offset(offset)
            self._loaded = False

    def draw(self) -> Tensor:
        """The next numbers, (S, *shape)."""
        dtype = DTYPES[self._kind]
        if self._states is None:
            return draw_rows(self._kind, self._shape, self._generators, dtype)
        assert self._loaded, "load() must be called before draw()"
        from intrigue.ops import philox_kernel  # Triton is optional, and slow to import.

        out = torch.empty(len(self._generators), *self._shape, dtype=dtype, device=self._device)
        with torch.cuda.device(self._device):
            philox_kernel.draw(self._states, out, self._kind == "normal")
        return out


def _max_threads(device: torch.device) -> int:
    """The most numbers of a draw for which each has a thread of its own."""
    properties = torch.cuda.get_device_properties(device)
    return int(properties.multi_processor_count) * int(properties.max_threads_per_multi_processor)


def _as_int64(seed: int) -> int:
    """The same 64 bits as a signed number."""
    return seed - (1 << 64) if seed >= 1 << 63 else seed
