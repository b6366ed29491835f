# mypy: ignore-errors
"""A Triton kernel: the columns of the k smallest float32 values of each row, one program per row.

Each value and its column become one integer,  key = order(value) · 2³² + column,  where `order` maps floats to integers
that compare as they do. Keys differ even where values are equal, so the next smallest is the smallest key above the
last one: nothing has to be marked as taken, and equal values, infinite ones too, are ordered by column.

mypy is off here: Triton's language has Python's syntax and its own types.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

SIGN_BIT = tl.constexpr(31)
MAGNITUDE = tl.constexpr(0x7FFFFFFF)  # all bits of a float32 but its sign
NAN_ORDER = tl.constexpr(0x7FC00000)  # above infinity's 0x7F800000, for NaN of either sign and any payload
LOWEST_KEY = tl.constexpr(-(2**63))  # below the key of -infinity, -0x7F800001 · 2³²
HIGHEST_KEY = tl.constexpr(2**63 - 1)  # above the key of NaN in any column
COLUMN_BITS = tl.constexpr(32)

# 48 registers a lane, none spilled (ptxas, sm_90). Instructions per row are fewest from 16 on; at 128 keys are spilled.
KEYS_PER_LANE = 16


@triton.jit
def _keys(values, column):
    """One int64 for each value and column, ascending as (value, column); NaN is above every number."""
    bits = (values + 0.0).to(tl.int32, bitcast=True)  # -0.0 + 0.0 is 0.0: zeros are equal whatever their sign
    # Of negative floats the larger magnitude is the smaller number, so their magnitude bits are turned.
    order = bits ^ ((bits >> SIGN_BIT) & MAGNITUDE)
    order = tl.where(values != values, NAN_ORDER, order)
    return (order.to(tl.int64) << COLUMN_BITS) | column


@triton.jit
def _bottom_k(values, columns, width, k, stride_row, stride_column, block: tl.constexpr):
    """`block`: a power of two, at least the row's width; padding is never the smallest."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    within = column < width
    loaded = tl.load(values + row * stride_row + column.to(tl.int64) * stride_column, mask=within, other=0.0)
    keys = tl.where(within, _keys(loaded, column), HIGHEST_KEY)
    last = tl.full((), LOWEST_KEY, tl.int64)
    for place in range(k):
        last = tl.min(tl.where(keys > last, keys, HIGHEST_KEY), axis=0)
        tl.store(columns + row * k + place, last & 0xFFFFFFFF)


def bottom_k(values: Tensor, k: int) -> Tensor:
    """Columns (R, k) of the k ≤ M smallest of each row of float32 `values` (R, M), smallest first."""
    rows, width = values.shape
    columns = torch.empty(rows, k, dtype=torch.int64, device=values.device)
    if rows:
        block = triton.next_power_of_2(width)
        warps = max(1, block // (32 * KEYS_PER_LANE))
        _bottom_k[(rows,)](values, columns, width, k, *values.stride(), block=block, num_warps=warps)
    return columns
