# mypy: ignore-errors
# ruff: noqa: N803
"""A Triton kernel: float32 rows as numbers of TensorFloat-32, side by side, so that one product of those is float32's.

    x = h + l + …       h: x rounded to TensorFloat-32's 11 bits; l: what is left, rounded so, |l| ≤ 2⁻¹¹ |x|
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
def _split(
    x, norms, asking, asked, D: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    QUERY: tl.constexpr, MEMORY: tl.constexpr,
):  # fmt: skip
    """One program per row of D numbers, as a query, as a memory, or as both. BLOCK: the next power of two."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    there = lane < D
    whole = tl.load(x + row * D + lane, mask=there, other=0.0)
    high = _rounded(whole)
    low = _rounded(_left(whole, high))
    tail = tl.arange(0, SPARE_LANES)
    spare = 3 * D + tail < WIDTH
    if QUERY:
        place = asking + row * WIDTH
        tl.store(place + lane, -2.0 * high, mask=there)
        tl.store(place + D + lane, -2.0 * high, mask=there)
        tl.store(place + 2 * D + lane, -2.0 * low, mask=there)
        tl.store(place + 3 * D + tail, tl.where(tail < 3, 1.0, 0.0), mask=spare)
    if MEMORY:
        place = asked + row * WIDTH
        tl.store(place + lane, high, mask=there)
        tl.store(place + D + lane, low, mask=there)
        tl.store(place + 2 * D + lane, high, mask=there)
        norm = tl.load(norms + row)
        first = _rounded(norm)
        second = _rounded(_left(norm, first))
        third = _rounded(_left(_left(norm, first), second))
        last = tl.where(tail == 0, first, tl.where(tail == 1, second, tl.where(tail == 2, third, 0.0)))
        tl.store(place + 3 * D + tail, last, mask=spare)


def split(query: Tensor, memory: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (..., D) of both side by side, (..., W); of a memory with their squared norms (...)."""
    depth = query.shape[-1]
    width = -(-(3 * depth + 3) // SPARE) * SPARE
    asking, asked = (each.new_empty(*each.shape[:-1], width) for each in (query, memory))
    query, memory, norms = (each.contiguous() for each in (query, memory, norms))
    if query.data_ptr() == memory.data_ptr() and query.shape == memory.shape:
        _launch(query, norms, asking, asked, asks=True, is_asked=True)  # one batch among itself, read once
    else:
        _launch(query, norms, asking, asked, asks=True, is_asked=False)
        _launch(memory, norms, asking, asked, asks=False, is_asked=True)
    return asking, asked


def _launch(rows: Tensor, norms: Tensor, asking: Tensor, asked: Tensor, *, asks: bool, is_asked: bool) -> None:
    depth = rows.shape[-1]
    block = triton.next_power_of_2(depth)
    if count := rows.numel() // depth:
        _split[(count,)](
            rows, norms, asking, asked, D=depth, WIDTH=asking.shape[-1], BLOCK=block, QUERY=asks, MEMORY=is_asked,
            num_warps=max(1, min(8, block // 128)),
        )  # fmt: skip
