"""Rounding to bfloat16 within Triton's kernels, the same on a GPU and by the interpreter."""
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def rounded(x):
    """To bfloat16's numbers, the nearest, of two the even one: a GPU does so by itself, the interpreter cuts off."""
    bits = x.to(tl.int32, bitcast=True)
    nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) & -0x10000
    return tl.where(x == x, nearest.to(tl.float32, bitcast=True), x)
