"""The custom operator `intrigue::pairwise_scores`: float32 products on tensor cores by splitting into TF32 (3xTF32).

    pairwise_scores(query, memory, norms)      (B, D), (M, D), (M,) -> (B, M)      norms − 2 query · memoryᵀ

It ranks neighbours, and scores ensembles (`matmul`), where `norms` are a layer's biases. All three may have leading
axes, of seeds and members; under vmap the batch axis is one more. With ‖m‖² as norms the result is ‖q − m‖² − ‖q‖²,
whose last term is the same for all candidates of a row.

Tensor cores do not support float32: a 1024 × 1024 × 1024 product takes 35 µs alone and 70 under load (H200). We split
each factor into TF32 parts that tensor cores multiply exactly (`tf32x3_kernel`): 24 µs for one product of three times
the depth, and 12 for splitting. The error is some 1e-7 of ‖q‖ ‖m‖, as in float32; with TF32 alone it would be 1e-4.

Rows must be finite, and below half of float32's largest number; norms may be infinite. There is no gradient: neither
ranks nor scores are learned from.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from intrigue.ops.custom_op import batch_leading, register_operator
from intrigue.ops.precision import allow_tf32
from intrigue.ops.triton_support import INTERPRETED, triton_available

MIN_SIZE = 256  # of B, M and D: below, splitting takes longer than it saves
MAX_DEPTH = 4096  # of D: one program holds a row
MAX_ELEMENTS = 1 << 24  # of either factor once split, leading axes not counted: 64 MiB


def pairwise_scores(query: Tensor, memory: Tensor, norms: Tensor) -> Tensor:
    """norms − 2 query · memoryᵀ, (B, M)."""
    scores: Tensor = PAIRWISE_SCORES(query.detach(), memory.detach(), norms.detach())
    return scores


def is_worth_splitting(query: Tensor, memory: Tensor) -> bool:
    """Whether splitting factors of these shapes and dtypes saves time, where it is possible."""
    sizes = (query.shape[-2], memory.shape[-2], query.shape[-1])
    floats = query.dtype == memory.dtype == torch.float32
    small = query.shape[-1] <= MAX_DEPTH and 3 * max(sizes[:2]) * query.shape[-1] <= MAX_ELEMENTS
    return floats and small and min(sizes) >= MIN_SIZE


def uses_kernel(query: Tensor, memory: Tensor) -> bool:
    """Whether these factors are split."""
    if not is_worth_splitting(query, memory) or not triton_available():
        return False
    # Tensor cores support TF32 from Ampere on.
    return INTERPRETED or (query.is_cuda and torch.cuda.get_device_capability(query.device) >= (8, 0))


def _pairwise_scores(query: Tensor, memory: Tensor, norms: Tensor) -> Tensor:
    if not uses_kernel(query, memory):
        if query.dim() == 2:
            return torch.addmm(norms, query, memory.mT, alpha=-2)
        if query.dim() == 3:
            return torch.baddbmm(norms.unsqueeze(-2), query, memory.mT, alpha=-2)
        return norms.unsqueeze(-2) - 2 * (query @ memory.mT)
    from intrigue.ops import tf32x3_kernel  # Triton is optional, and slow to import.

    with torch.cuda.device_of(query), allow_tf32():  # Triton launches on torch's current device.
        split_query, split_memory = tf32x3_kernel.split(query, memory, norms)
        return split_query @ split_memory.mT


def _fake(query: Tensor, memory: Tensor, *_: Any) -> Tensor:
    return query.new_empty((*query.shape[:-1], memory.shape[-2]))


PAIRWISE_SCORES = register_operator(
    "pairwise_scores(Tensor query, Tensor memory, Tensor norms) -> Tensor", _pairwise_scores, _fake, vmap=batch_leading
)
