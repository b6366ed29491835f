"""Whether Triton's kernels can be started here.

What rules of torch's vmap for our operators have in common, and the kernels behind them.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Sequence

import torch
from torch import Tensor

from intrigue.ops.native_build import CannotCompile, find_compiler

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # kernels as Python, on a CPU


@functools.cache
def triton_lacks() -> str:
    """What keeps Triton from running, and the remedy; empty where nothing does."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed. Install it with: pip install triton"
    if INTERPRETED:
        return ""
    try:
        find_compiler()  # with which Triton builds what starts a kernel
    except CannotCompile:
        return "Triton needs a C compiler. Install gcc or clang, or name one in CC"
    return ""


def triton_works() -> bool:
    """Whether kernels can be started."""
    return not triton_lacks()


TRITON_WORKS = triton_works()
NVIDIA = torch.version.hip is None  # AMD's GPUs are called "cuda" too, and have no TensorFloat-32 in three parts


def kernels_run_on(device: torch.device) -> bool:
    """Whether they can be started on tensors there. Nothing in it that torch.compile could not look into."""
    return TRITON_WORKS and ((device.type == "cuda" and NVIDIA) or INTERPRETED)


def axis_first(those: Sequence[Tensor], in_dims: Sequence[int | None], size: int) -> list[Tensor]:
    """Each with the mapped axis in front; where it has none, the same `size` times, without a copy."""
    return [
        each.expand(size, *each.shape) if dim is None else each.movedim(dim, 0)
        for each, dim in zip(those, in_dims, strict=True)
    ]


def seeds_first(those: Sequence[Tensor], in_dims: Sequence[int | None], size: int) -> tuple[list[Tensor], bool]:
    """Each with the mapped axis in front, and whether seeds that they had already were put into it.

    The first of them are rows: (B, H), or (S, B, H) of seeds. Mapped over M that is (M, B, H), or (M · S, B, H): the
    seeds of the first map, then those of the second. `in_dims` may go on behind those given.
    """
    first = axis_first(those, in_dims[: len(those)], size)
    several = first[0].dim() == 4
    return [each.flatten(0, 1) for each in first] if several else first, several


def in_order(each: Tensor) -> Tensor:
    """Each seed's numbers without gaps, as kernels read them; seeds that share them still do."""
    if each[0].is_contiguous():
        return each
    return each[:1].contiguous().expand_as(each) if each.stride(0) == 0 else each.contiguous()
