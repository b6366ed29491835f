"""Random numbers for several seeds at once, each from its own generator.

    lanes = Lanes(generators)                    one generator for each seed
    stacked.call("loss", batch, lanes)           seed s is handed its lane, and draws what `generators[s]` gives

A loss draws through `rng.uniform` and `rng.normal`, whatever it was handed. Within a computation for all seeds a draw
is one call for every generator, into the rows of one tensor: the numbers of seed s are those a lone run would draw. It
never waits for the device, and can be captured in a CUDA graph with which the generators are registered.

`lane` has the axis of the seeds and no other meaning: it is how torch's vmap tells that a draw differs between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, final

import torch
from torch import Generator, Tensor
from torch.utils import _pytree as pytree

from intrigue.rng import Draws, normal, uniform

Fill: TypeAlias = "Callable[[Tensor, Generator], Tensor]"


@final
class Lanes(Draws):
    """The generators of S seeds; as an argument of `Stacked.call`, each seed's own."""

    def __init__(self, generators: Sequence[Generator], lane: Tensor | None = None) -> None:
        if not generators:
            raise ValueError("no generators. Pass one for each seed.")
        self.generators = tuple(generators)
        self.lane = torch.zeros(len(generators), device=generators[0].device) if lane is None else lane

    def uniform(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Numbers in [0, 1)."""
        if self._alone:
            return uniform(shape, self.generators[0], dtype)
        return self._together(_fill_uniform, shape, dtype)

    def normal(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Standard normal numbers."""
        if self._alone:
            return normal(shape, self.generators[0], dtype)
        return self._together(_fill_normal, shape, dtype)

    @property
    def _alone(self) -> bool:
        """Whether this is the lane of one seed that was not batched."""
        return len(self.generators) == 1 and self.lane.dim() == 0

    def _together(self, fill: Fill, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        drawn: Tensor = _PerSeed.apply(self.lane, self.generators, fill, tuple(shape), dtype)  # type: ignore[no-untyped-call]
        return drawn


class _PerSeed(torch.autograd.Function):
    """A draw that has a rule for vmap, and nothing else."""

    @staticmethod
    def forward(
        lane: Tensor, generators: Sequence[Generator], fill: Fill, shape: tuple[int, ...], dtype: torch.dtype
    ) -> Tensor:
        raise RuntimeError(f"{len(generators)} seeds draw together only within Stacked.call, each its own numbers.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[int | None, ...],
        lane: Tensor,
        generators: Sequence[Generator],
        fill: Fill,
        shape: tuple[int, ...],
        dtype: torch.dtype,
    ) -> tuple[Tensor, int]:
        if info.batch_size != len(generators):
            raise ValueError(f"{len(generators)} generators for {info.batch_size} seeds. Pass one for each.")
        drawn = torch.empty(len(generators), *shape, dtype=dtype, device=lane.device)
        for row, generator in zip(drawn, generators, strict=True):
            fill(row, generator)
        return drawn, 0


def _fill_uniform(rows: Tensor, generator: Generator) -> Tensor:
    return rows.uniform_(generator=generator)


def _fill_normal(rows: Tensor, generator: Generator) -> Tensor:
    return rows.normal_(generator=generator)


def _flatten(lanes: Lanes) -> tuple[list[Any], tuple[Generator, ...]]:
    return [lanes.lane], lanes.generators


def _unflatten(parts: Any, generators: tuple[Generator, ...]) -> Lanes:
    (lane,) = parts
    return Lanes(generators, lane)


pytree.register_pytree_node(Lanes, _flatten, _unflatten, serialized_type_name="intrigue.cohort.lanes.Lanes")
