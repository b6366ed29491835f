# mypy: ignore-errors
# ruff: noqa: N803
"""A Triton kernel: splits float32 rows into TF32 parts, side by side, so that one TF32 product gives float32's.

    x = h + l + …       h: x rounded to TF32's 11 bits; l: the remainder, rounded so, |l| ≤ 2⁻¹¹ |x|
    x · y = h·h' + h·l' + l·h' + …         the rest is at most some 2⁻²¹ |x| |y|, as float32's own rounding

    a query     −2 h   −2 h   −2 l   1   1   1
    a memory       h      l      h   n   n'  n''          n + n' + n'' = ‖y‖², 33 bits of it

The product of two such rows is ‖y‖² − 2 x·y. Rows are padded with zeros to whole 32 bytes. An infinite ‖y‖² stays so.

mypy is off here: Triton's language has Python's syntax and its own types.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

HALF = tl.constexpr(0x1000)  # of the last of 11 bits
KEPT = tl.constexpr(-0x2000)  # sign, exponent and 10 bits behind the point
ALIGNMENT = 8  # numbers in 32 bytes
TAIL_LANES = tl.constexpr(16)  # the squared norm, three numbers, and padding


@triton.jit
def _round_to_tf32(x):
    """To the nearest TF32 number; NaN stays NaN."""
    nearest = ((x.to(tl.int32, bitcast=True) + HALF) & KEPT).to(tl.float32, bitcast=True)
    return tl.where(x == x, nearest, x)


@triton.jit
def _remainder(x, rounded):
    """x − rounded; 0 where x is infinite."""
    return tl.where(x == rounded, 0.0, x - rounded)


@triton.jit
def _split(
    x, norms, queries, memories, D: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    QUERY: tl.constexpr, MEMORY: tl.constexpr,
):  # fmt: skip
    """One program per row of D numbers, as a query, as a memory, or as both. BLOCK: the next power of two."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    inside = lane < D
    whole = tl.load(x + row * D + lane, mask=inside, other=0.0)
    high = _round_to_tf32(whole)
    low = _round_to_tf32(_remainder(whole, high))
    tail = tl.arange(0, TAIL_LANES)
    in_tail = 3 * D + tail < WIDTH
    if QUERY:
        place = queries + row * WIDTH
        tl.store(place + lane, -2.0 * high, mask=inside)
        tl.store(place + D + lane, -2.0 * high, mask=inside)
        tl.store(place + 2 * D + lane, -2.0 * low, mask=inside)
        tl.store(place + 3 * D + tail, tl.where(tail < 3, 1.0, 0.0), mask=in_tail)
    if MEMORY:
        place = memories + row * WIDTH
        tl.store(place + lane, high, mask=inside)
        tl.store(place + D + lane, low, mask=inside)
        tl.store(place + 2 * D + lane, high, mask=inside)
        norm = tl.load(norms + row)
        first = _round_to_tf32(norm)
        second = _round_to_tf32(_remainder(norm, first))
        third = _round_to_tf32(_remainder(_remainder(norm, first), second))
        last = tl.where(tail == 0, first, tl.where(tail == 1, second, tl.where(tail == 2, third, 0.0)))
        tl.store(place + 3 * D + tail, last, mask=in_tail)


def split(query: Tensor, memory: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
    """The parts of the rows (..., D) of both side by side, (..., W); those of the memory with their squared norms."""
    depth = query.shape[-1]
    width = -(-(3 * depth + 3) // ALIGNMENT) * ALIGNMENT
    queries, memories = (each.new_empty(*each.shape[:-1], width) for each in (query, memory))
    query, memory, norms = (each.contiguous() for each in (query, memory, norms))
    if query.data_ptr() == memory.data_ptr() and query.shape == memory.shape:
        _launch(query, norms, queries, memories, is_query=True, is_memory=True)  # a batch against itself, read once
    else:
        _launch(query, norms, queries, memories, is_query=True, is_memory=False)
        _launch(memory, norms, queries, memories, is_query=False, is_memory=True)
    return queries, memories


def _launch(rows: Tensor, norms: Tensor, queries: Tensor, memories: Tensor, *, is_query: bool, is_memory: bool) -> None:
    depth = rows.shape[-1]
    block = triton.next_power_of_2(depth)
    if count := rows.numel() // depth:
        _split[(count,)](
            rows, norms, queries, memories, D=depth, WIDTH=queries.shape[-1], BLOCK=block, QUERY=is_query,
            MEMORY=is_memory,
            num_warps=max(1, min(8, block // 128)),
        )  # fmt: skip
