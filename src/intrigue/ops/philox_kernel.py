# mypy: ignore-errors
# ruff: noqa: N803
"""A Triton kernel: the numbers that torch's generators on a GPU would give, without a word from the host.

torch draws by Philox4x32-10 (Salmon et al. 2011), as NVIDIA's cuRAND numbers its streams: number i of a draw is made
of the four words

    Philox(counter = (offset / 4, i), key = seed)

of 64-bit offset, i and seed, as long as there are fewer numbers than a GPU has threads; then the offset moves on by 4.

    uniform    x ⊕ 2²¹ y of the first two words, times 2⁻⁵³, plus 2⁻⁵⁴; 1 is taken for 0       float64, to the bit
    normal     √(−2 ln u) sin v, of u = 2⁻³² (x + ½) and v = 2π 2⁻³² (y + ½)                  float32, but for rounding

One program draws all numbers of a seed, so that it can move the offset on when they are drawn.

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
    none = place * 0
    low, high = (offset >> 2).to(tl.int32), (offset >> 34).to(tl.int32)
    first, second, _, _ = tl.philox(seed, none + low, none + high, place, none)
    return first, second


@triton.jit
def _roll(states, out, COUNT: tl.constexpr, BLOCK: tl.constexpr, NORMAL: tl.constexpr):
    """`states`: seed and offset of each, int64. Programs: seeds."""
    row = tl.program_id(0)
    seed, offset = tl.load(states + 2 * row), tl.load(states + 2 * row + 1)
    for begin in range(0, COUNT, BLOCK):
        place = begin + tl.arange(0, BLOCK)
        first, second = _words(seed, offset, place)
        if NORMAL:
            u = first.to(tl.float32) * TO_UNIT + TO_UNIT / 2
            v = second.to(tl.float32) * TO_ANGLE + TO_ANGLE / 2
            drawn = tl.sqrt(-2.0 * tl.log(u)) * tl.sin(v)
        else:
            bits = first.to(tl.uint64) ^ (second.to(tl.uint64) << 21)
            drawn = bits.to(tl.float64) * 2.0**-53 + 2.0**-54
            drawn = tl.where(drawn == 1.0, 0.0, drawn)
        tl.store(out + row.to(tl.int64) * COUNT + place, drawn, mask=place < COUNT)
    tl.debug_barrier()  # Every thread has read the offset.
    tl.store(states + 2 * row + 1, offset + 4)


def roll(states: Tensor, out: Tensor, normal: bool) -> None:
    """Fill `out` (S, ...) with the next numbers of the streams whose `states` (S, 2) these are, and move them on."""
    count = out[0].numel()
    _roll[(len(states),)](
        states, out, COUNT=count, BLOCK=min(BLOCK, triton.next_power_of_2(count)), NORMAL=normal, num_warps=WARPS
    )
