"""The custom operator `intrigue::bottom_k`: columns of the k smallest values of each row.

    bottom_k(values, k)    (R, M) -> (R, k)    smallest first, int64

NaN is larger than every number. Float32 rows on CUDA go through one Triton kernel, where equal values are ordered by
column; everything else goes through `torch.topk`, in its order. Neither synchronises with the host. There is no
gradient. Under vmap the batch axis is more rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from intrigue.ops.custom_op import register_operator
from intrigue.ops.triton_support import triton_available

# A program holds one row in registers and passes over it k times, so wide rows and large k are left to torch.topk.
MAX_WIDTH = 4096
MAX_K = 32


def bottom_k(values: Tensor, k: int) -> Tensor:
    """Columns (R, k) of the k smallest of each row of `values` (R, M), smallest first."""
    columns: Tensor = BOTTOM_K(values, k)
    return columns


def uses_kernel(device: torch.device, dtype: torch.dtype, width: int, k: int) -> bool:
    """Whether rows of this width go through the Triton kernel."""
    fits = width <= MAX_WIDTH and 1 <= k <= min(width, MAX_K)
    return fits and device.type == "cuda" and dtype == torch.float32 and triton_available()


def _bottom_k(values: Tensor, k: int) -> Tensor:
    if uses_kernel(values.device, values.dtype, values.shape[1], k):
        from intrigue.ops import topk_kernel  # Triton is optional, and slow to import.

        with torch.cuda.device(values.device):  # Triton launches on torch's current device.
            return topk_kernel.bottom_k(values, k)
    return values.topk(k, largest=False).indices


def _fake(values: Tensor, k: int) -> Tensor:
    return values.new_empty((values.shape[0], k), dtype=torch.int64)


def _vmap(operator: Any, size: int, axes: tuple[int, None], values: Tensor, k: int) -> tuple[Tensor, int]:
    columns: Tensor = operator(values.movedim(axes[0], 0).flatten(0, 1), k)
    return columns.unflatten(0, (size, -1)), 0


BOTTOM_K = register_operator("bottom_k(Tensor values, int k) -> Tensor", _bottom_k, _fake, vmap=_vmap)
