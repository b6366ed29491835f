# mypy: ignore-errors
# ruff: noqa: N803
"""A Triton kernel: the numbers that torch's CUDA generators would draw, from seeds and offsets kept on the GPU.

torch uses Philox4x32-10 (Salmon et al. 2011) with the stream numbering of NVIDIA's cuRAND. Number i of a draw comes
from the four words

    Philox(counter = (offset / 4, i), key = seed)

of 64-bit offset, i and seed, provided that a draw has no more numbers than the GPU has threads. Afterwards the offset
advances by 4.

    uniform    x ⊕ 2²¹ y of the first two words, times 2⁻⁵³, plus 2⁻⁵⁴; 1 becomes 0       float64, the same bits
    normal     √(−2 ln u) sin v, of u = 2⁻³² (x + ½) and v = 2π 2⁻³² (y + ½)                  float32, up to rounding

One program draws all numbers of a seed, so that it can advance the offset afterwards.

mypy is off here: Triton's language has Python's syntax and its own types.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2048  # numbers at a time
WARPS = 8
TO_UNIT = tl.constexpr(2.0**-32)
TO_ANGLE = tl.constexpr(2.0**-32 * 6.283185307179586)


@triton.jit
def _words(seed, offset, place):
    """The first two of each place's four words."""
    zeros = place * 0
    low, high = (offset >> 2).to(tl.int32), (offset >> 34).to(tl.int32)
    first, second, _, _ = tl.philox(seed, zeros + low, zeros + high, place, zeros)
    return first, second


@triton.jit
def _draw(states, out, COUNT: tl.constexpr, BLOCK: tl.constexpr, NORMAL: tl.constexpr):
    """`states`: seed and offset of each, int64. Programs: seeds."""
    row = tl.program_id(0)
    seed, offset = tl.load(states + 2 * row), tl.load(states + 2 * row + 1)
    for begin in range(0, COUNT, BLOCK):
        place = begin + tl.arange(0, BLOCK)
        first, second = _words(seed, offset, place)
        if NORMAL:
            u = first.to(tl.float32) * TO_UNIT + TO_UNIT / 2
            v = second.to(tl.float32) * TO_ANGLE + TO_ANGLE / 2
            numbers = tl.sqrt(-2.0 * tl.log(u)) * tl.sin(v)
        else:
            bits = first.to(tl.uint64) ^ (second.to(tl.uint64) << 21)
            numbers = bits.to(tl.float64) * 2.0**-53 + 2.0**-54
            numbers = tl.where(numbers == 1.0, 0.0, numbers)
        tl.store(out + row.to(tl.int64) * COUNT + place, numbers, mask=place < COUNT)
    tl.debug_barrier()  # Every thread has read the offset.
    tl.store(states + 2 * row + 1, offset + 4)


def draw(states: Tensor, out: Tensor, normal: bool) -> None:
    """Fill `out` (S, ...) with the next numbers of the streams with these `states` (S, 2), and advance them."""
    count = out[0].numel()
    _draw[(len(states),)](
        states, out, COUNT=count, BLOCK=min(BLOCK, triton.next_power_of_2(count)), NORMAL=normal, num_warps=WARPS
    )
