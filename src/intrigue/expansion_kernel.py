# mypy: ignore-errors
# ruff: noqa: N803
"""A Triton kernel: float32 rows as numbers of TensorFloat-32, side by side, so that one product of those is float32's.

    x = h + l + …       h: x rounded to TensorFloat-32's 11 bits; l: what is left, rounded so, |l| ≤ 2⁻¹² |x|
    x · y = h·h' + h·l' + l·h' + …         what is left out is at most 2⁻²¹ of |x| |y| or so: float32's own rounding

    a query     −2 h   −2 h   −2 l   1   1   1
    a memory       h      l      h   n   n'  n''          n + n' + n'' = ‖y‖², 33 bits of it

The product of two such rows is ‖y‖² − 2 x·y. Zeros fill them up to whole 32 bytes. An infinite ‖y‖² stays so.

mypy is off here: Triton's language has Python's syntax and its own types.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

HALF = tl.constexpr(0x1000)  # of the last of 11 bits
KEPT = tl.constexpr(-0x2000)  # sign, exponent and 10 bits behind the point
SPARE = 8  # Rows are a multiple of it; three of its places hold the squared norm.
SPARE_LANES = tl.constexpr(16)


@triton.jit
def _rounded(x):
    """To TensorFloat-32, the nearest; what is no number stays none."""
    nearest = ((x.to(tl.int32, bitcast=True) + HALF) & KEPT).to(tl.float32, bitcast=True)
    return tl.where(x == x, nearest, x)


@triton.jit
def _left(x, rounded):
    """x less what it was rounded to; nothing of what is infinite."""
    return tl.where(x == rounded, 0.0, x - rounded)


@triton.jit
def _split(x, norms, out, D: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, QUERY: tl.constexpr):
    """One program per row of D numbers. BLOCK: the next power of two."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    there = lane < D
    whole = tl.load(x + row * D + lane, mask=there, other=0.0)
    high = _rounded(whole)
    low = _rounded(_left(whole, high))
    place = out + row * WIDTH + lane
    tail = tl.arange(0, SPARE_LANES)
    if QUERY:
        high, low = -2.0 * high, -2.0 * low
        tl.store(place, high, mask=there)
        tl.store(place + D, high, mask=there)
        tl.store(place + 2 * D, low, mask=there)
        last = tl.where(tail < 3, 1.0, 0.0)
    else:
        tl.store(place, high, mask=there)
        tl.store(place + D, low, mask=there)
        tl.store(place + 2 * D, high, mask=there)
        norm = tl.load(norms + row)
        first = _rounded(norm)
        second = _rounded(_left(norm, first))
        third = _rounded(_left(_left(norm, first), second))
        last = tl.where(tail == 0, first, tl.where(tail == 1, second, tl.where(tail == 2, third, 0.0)))
    tl.store(out + row * WIDTH + 3 * D + tail, last, mask=3 * D + tail < WIDTH)


def split(rows: Tensor, norms: Tensor | None) -> Tensor:
    """Rows (..., D) side by side, (..., W): a memory's with their squared norms (...), a query's without."""
    depth = rows.shape[-1]
    width = -(-(3 * depth + 3) // SPARE) * SPARE
    out = rows.new_empty(*rows.shape[:-1], width)
    rows = rows.contiguous()
    count = out.numel() // width
    if count:
        norms_given = rows if norms is None else norms.contiguous()  # a query's are not read
        block = triton.next_power_of_2(depth)
        _split[(count,)](
            rows, norms_given, out, D=depth, WIDTH=width, BLOCK=block, QUERY=norms is None,
            num_warps=max(1, min(8, block // 128)),
        )  # fmt: skip
    return out
