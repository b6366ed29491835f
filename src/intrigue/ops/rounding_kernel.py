"""Rounding to bfloat16 within Triton kernels, the same on a GPU and in the interpreter."""
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def round_to_bfloat16(x):
    """To the nearest bfloat16, ties to even, as float32. A GPU's own cast rounds so; the interpreter's truncates."""
    bits = x.to(tl.int32, bitcast=True)
    nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) & -0x10000
    return tl.where(x == x, nearest.to(tl.float32, bitcast=True), x)
