"""The custom operator `intrigue::expanded`, opaque to torch.compile and graph capture: float32 by matrix units.

    expanded(query, memory, norms)      (B, D), (M, D), (M,) -> (B, M)      norms − 2 query · memoryᵀ

It ranks neighbours, and scores ensembles (`matmul`), where `norms` are a layer's biases; all three may have
axes in front, of seeds and members.

With ‖m‖² as norms that is ‖q − m‖² less ‖q‖², which is the same for all candidates of a row. In float32, which on a GPU
is no matter for its matrix units: 1024 rows of 1024 numbers take 35 µs alone and twice that beside other work (H200).
There the factors are split into parts that those units multiply without rounding them (`tf32x3_kernel`): 24 µs for
one product of three times the depth, and 12 for splitting. It is off by some 1e-7 of ‖q‖ ‖m‖, as float32's sums are;
TensorFloat-32 alone would be off by 1e-4.

Rows must be finite, and less than half of what float32 holds; norms may be infinite.

Under torch's vmap the mapped axis comes in front of all of them. There is no gradient: ranks have none, and nobody
learns from a score.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, library

from intrigue.ops.precision import tensor_float32
from intrigue.ops.triton_support import INTERPRETED, axis_first, triton_works

LEAST = 256  # rows, candidates and numbers of each: of fewer, splitting takes longer than it saves
DEEPEST = 4096  # numbers of a row, which one program holds
MOST_ELEMENTS = 1 << 24  # numbers of either factor once it is split, of one of those in front: 64 MiB

_LIBRARY = library.Library("intrigue", "FRAGMENT")
_LIBRARY.define("expanded(Tensor query, Tensor memory, Tensor norms) -> Tensor")


def worth_splitting(query: Tensor, memory: Tensor) -> bool:
    """Whether factors of such shapes and types are better split, where they can be."""
    sizes = (query.shape[-2], memory.shape[-2], query.shape[-1])
    floats = query.dtype == memory.dtype == torch.float32
    small = query.shape[-1] <= DEEPEST and 3 * max(sizes[:2]) * query.shape[-1] <= MOST_ELEMENTS
    return floats and small and min(sizes) >= LEAST


def takes_kernel(query: Tensor, memory: Tensor) -> bool:
    """Whether factors are split."""
    if not worth_splitting(query, memory) or not triton_works():
        return False
    # Before Ampere no matrix unit takes TensorFloat-32.
    return INTERPRETED or (query.is_cuda and torch.cuda.get_device_capability(query.device) >= (8, 0))


def _expanded(query: Tensor, memory: Tensor, norms: Tensor) -> Tensor:
    if not takes_kernel(query, memory):
        if query.dim() == 2:
            return torch.addmm(norms, query, memory.mT, alpha=-2)
        if query.dim() == 3:
            return torch.baddbmm(norms.unsqueeze(-2), query, memory.mT, alpha=-2)
        return norms.unsqueeze(-2) - 2 * (query @ memory.mT)
    from intrigue.ops import tf32x3_kernel  # Triton is optional, and slow to import.

    with torch.cuda.device_of(query), tensor_float32():  # Triton launches where torch is at the moment.
        asking, asked = tf32x3_kernel.split(query, memory, norms)
        return asking @ asked.mT


def _fake_expanded(query: Tensor, memory: Tensor, norms: Tensor) -> Tensor:
    del norms
    return query.new_empty((*query.shape[:-1], memory.shape[-2]))


# One function for every device: `query` says which.
_LIBRARY.impl("expanded", _expanded, "CompositeExplicitAutograd")
library.register_fake("intrigue::expanded", _fake_expanded, lib=_LIBRARY)

EXPANDED = torch.ops.intrigue.expanded.default


def expanded(query: Tensor, memory: Tensor, norms: Tensor) -> Tensor:
    """norms − 2 query · memoryᵀ, (B, M)."""
    found: Tensor = EXPANDED(query.detach(), memory.detach(), norms.detach())
    return found


def _vmap_expanded(
    info: Any, in_dims: tuple[int | None, ...], query: Tensor, memory: Tensor, norms: Tensor
) -> tuple[Tensor, int]:
    return EXPANDED(*axis_first((query, memory, norms), in_dims, info.batch_size)), 0


library.register_vmap("intrigue::expanded", _vmap_expanded, lib=_LIBRARY)
