"""Random numbers for several seeds at once, each from its own generator, drawn before they are used.

    asked = Asked(device); stacked.call("loss", batch, asked)     what a loss draws, in its order: `asked.draws`
    drawn = draw(asked.draws, generators)                         (S, ...) of each draw; one generator for each seed
    stacked.call("loss", batch, drawn)                            seed s is handed its rows, in that order

A loss draws through `rng.uniform` and `rng.normal`, whatever it was handed. The numbers of seed s are those that a lone
run would draw from `generators[s]`. As they are drawn outside, the loss itself can be mapped over seeds and compiled,
neither of which a generator lets happen. Drawing never waits for the device, and can be captured in a CUDA graph with
which the generators are registered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from torch import Generator, Tensor
from torch.utils import _pytree as pytree

from intrigue.rng import Draws, Kind, draw_rows

SAME = "A loss must draw the same every time."


class Draw(NamedTuple):
    """One draw of one seed."""

    kind: Kind
    shape: tuple[int, ...]
    dtype: torch.dtype


@final
class DrawRecorder(Draws):
    """Notes what is drawn, and gives zeros."""

    def __init__(self, device: torch.device) -> None:
        self.draws: list[Draw] = []
        self._device = device

    def uniform(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Zeros."""
        return self._noted(Draw("uniform", tuple(shape), dtype))

    def normal(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Zeros."""
        return self._noted(Draw("normal", tuple(shape), dtype))

    def _noted(self, asked: Draw) -> Tensor:
        self.draws.append(asked)
        return torch.zeros(asked.shape, dtype=asked.dtype, device=self._device)


@final
class PreDrawn(Draws):
    """Numbers (S, ...) of S seeds for each of these draws; within `Stacked.call` each seed's own, to be drawn once."""

    def __init__(self, draws: Sequence[Draw], numbers: Sequence[Tensor]) -> None:
        self.draws, self.numbers = tuple(draws), tuple(numbers)
        self._next = 0

    def uniform(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Numbers in [0, 1)."""
        return self._given(Draw("uniform", tuple(shape), dtype))

    def normal(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Standard normal numbers."""
        return self._given(Draw("normal", tuple(shape), dtype))

    def finish(self) -> None:
        """Raise if not all numbers were used: the generators would be ahead of a lone run's."""
        if self._next < len(self.draws):
            raise RuntimeError(f"{self._next} of {len(self.draws)} draws were asked for. {SAME}")

    def _given(self, asked: Draw) -> Tensor:
        place, self._next = self._next, self._next + 1
        if place >= len(self.draws):
            raise RuntimeError(f"draw {place} is {asked}, but only {len(self.draws)} were asked for before. {SAME}")
        if self.draws[place] != asked:
            raise RuntimeError(f"draw {place} is {asked}, where {self.draws[place]} was asked for before. {SAME}")
        if self.numbers[place].shape != asked.shape:
            raise RuntimeError("seeds draw together only within Stacked.call, each its own numbers.")
        return self.numbers[place]


def draw(draws: Sequence[Draw], generators: Sequence[Generator]) -> PreDrawn:
    """What each seed's generator gives for these draws, in their order."""
    return PreDrawn(draws, [draw_rows(each.kind, each.shape, generators, each.dtype) for each in draws])


def _flatten(drawn: PreDrawn) -> tuple[list[Tensor], tuple[Draw, ...]]:
    return [*drawn.numbers], drawn.draws


def _unflatten(numbers: object, draws: tuple[Draw, ...]) -> PreDrawn:
    assert isinstance(numbers, list | tuple)
    return PreDrawn(draws, numbers)


pytree.register_pytree_node(
    PreDrawn, _flatten, _unflatten, serialized_type_name="intrigue.training.stacked.random.PreDrawn"
)
