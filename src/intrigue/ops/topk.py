"""The custom operator `intrigue::smallest`, opaque to torch.compile and graph capture.

    smallest(values, k)    (R, M) -> (R, k)    columns of the k smallest of each row, smallest first, int64

NaN is larger than every number. One Triton kernel finds them in float32 rows on CUDA, and equal values stand in the
order of their columns; everything else goes to `torch.topk`, and equal values in that one's order. Neither waits for
the device. No gradient is defined: columns have none. Under torch's vmap the mapped axis is more rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, library

from intrigue.ops.triton_support import triton_works

# A program holds one row in registers and goes through it k times, so a wide row or a large k is torch.topk's.
WIDEST = 4096
MOST = 32

_LIBRARY = library.Library("intrigue", "FRAGMENT")
_LIBRARY.define("smallest(Tensor values, int k) -> Tensor")


def _smallest(values: Tensor, k: int) -> Tensor:
    if takes_kernel(values.device, values.dtype, values.shape[1], k):
        from intrigue.ops import topk_kernel  # Triton is optional, and slow to import.

        with torch.cuda.device(values.device):  # Triton launches where torch is at the moment.
            return topk_kernel.smallest(values, k)
    return values.topk(k, largest=False).indices


def takes_kernel(device: torch.device, dtype: torch.dtype, width: int, k: int) -> bool:
    """Whether the k smallest of rows of this width are found by the Triton kernel."""
    fits = width <= WIDEST and 1 <= k <= min(width, MOST)
    return fits and device.type == "cuda" and dtype == torch.float32 and triton_works()


def _fake_smallest(values: Tensor, k: int) -> Tensor:
    return values.new_empty((values.shape[0], k), dtype=torch.int64)


# One function for every device: `values` says which.
_LIBRARY.impl("smallest", _smallest, "CompositeExplicitAutograd")
library.register_fake("intrigue::smallest", _fake_smallest, lib=_LIBRARY)

SMALLEST = torch.ops.intrigue.smallest.default


def smallest(values: Tensor, k: int) -> Tensor:
    """Columns (R, k) of the k smallest of each row of `values` (R, M), smallest first."""
    columns: Tensor = SMALLEST(values, k)
    return columns


def _vmap_smallest(info: Any, in_dims: tuple[int | None, None], values: Tensor, k: int) -> tuple[Tensor, int]:
    """Rows of all maps, one after the other."""
    assert in_dims[0] is not None  # `values` is the only tensor, so it is what is mapped.
    columns: Tensor = SMALLEST(values.movedim(in_dims[0], 0).flatten(0, 1), k)
    return columns.unflatten(0, (info.batch_size, -1)), 0


library.register_vmap("intrigue::smallest", _vmap_smallest, lib=_LIBRARY)
