"""From two raw screens to one 84 x 84 picture: brighter of the two, grey, shrink. Exact, and the same on every machine.

    colour[c] = max(older[c], newer[c])                               per pixel and channel, c in {R, G, B}
    grey      = (299 R + 587 G + 114 B) / 1000                        luminance (ITU-R BT.601)
    picture   = V · grey · Hᵀ / (v hᵀ),   v = V·1, h = H·1            a filter per axis, weights normalised per pixel

`bilinear` is Pillow's filter: a triangle as wide as one output pixel on either side. `area` is OpenCV's: the share of
each input pixel that an output pixel covers. Both have rational weights, so V and H hold whole numbers, and while the
sums stay below 2^24 a float32 product of them is exact in whatever order a machine adds. One division rounds at the
end. `bilinear` keeps greys in sixteenths and drops the fraction of the result, `area` rounds greys and result to whole
levels: as the originals do, which compute in floating point and differ from this by at most one level.

The screens come as indices into the console's 128 colours, so max and luminance of two pixels are one look-up. Most
pixels are alike in both screens: greys are looked up from the newer one, two neighbours at once, and then corrected in
words of eight pixels that differ. Nothing is kept from one picture to the next, and all environments of a process with
the same screen share tables and buffers: with little memory of its own the emulator's stays in the processor's cache.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable
from typing import Literal, final

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from intrigue.envs.atari.frame_stack import Bytes, FrameStack
from intrigue.envs.atari.protocols import SIDE

Kind = Literal["bilinear", "area"]

LUMINANCE = (299, 587, 114)  # ITU-R BT.601, in thousandths.
GREY_PARTS = {"bilinear": 16, "area": 1}  # Parts of a grey level that are kept: the most that float32 sums exactly.
WORD = 8  # Pixels compared at once: one 64-bit word.
PAIRS = 1 << 16  # Values of two neighbouring pixels.
BLOCKS = 7  # Matrices are products of small blocks along their diagonal; measured: 7 is best for 210 rows.
EXACT_FLOAT32 = 2**24  # Whole numbers up to here are exact in float32.
# A quotient below 256 whose denominator is below this lies further from the next whole number than float32 rounds.
EXACT_QUOTIENT = 2**17


def filter_weights(size_in: int, size_out: int, kind: Kind) -> NDArray[np.int64]:
    """Whole-numbered weights (size_out, size_in) of a filter along one axis, without a common divisor."""
    left = np.arange(size_in)[None] * size_out  # In units of which both sizes are multiples.
    start = np.arange(size_out)[:, None] * size_in
    if kind == "bilinear":
        distance = np.abs(2 * left + size_out - 2 * start - size_in)  # Twice the distance of the two middles.
        weights = np.maximum(0, 2 * size_in - distance)
    else:
        covered = np.minimum(left + size_out, start + size_in) - np.maximum(left, start)
        weights = np.maximum(0, covered)
    smallest: NDArray[np.int64] = weights // np.gcd.reduce(weights, axis=None)
    return smallest


def grey_table(palette: Bytes, kind: Kind) -> NDArray[np.int64]:
    """The grey of every pair of colours (256, 256), in parts of a level: luminance of the channel-wise maximum."""
    brighter = np.maximum(palette[:, None], palette[None]).astype(np.int64)
    thousandths = brighter @ np.array(LUMINANCE) * GREY_PARTS[kind]
    greys: NDArray[np.int64] = (thousandths if kind == "bilinear" else thousandths + 500) // 1000
    return greys


def exact_in_float32(
    greys: NDArray[np.int64], row_sums: NDArray[np.int64], column_sums: NDArray[np.int64], kind: Kind
) -> bool:
    """Whether float32 holds every sum, and rounds no quotient up to the next whole number."""
    weight = int(row_sums.max() * column_sums.max())
    return int(greys.max()) * weight < EXACT_FLOAT32 and weight * GREY_PARTS[kind] < EXACT_QUOTIENT


@final
class AxisFilter:
    """One axis of the filter as a band of small dense blocks: out[b] = weights[b] @ in[window b]."""

    def __init__(self, size_in: int, kind: Kind) -> None:
        weights = filter_weights(size_in, SIDE, kind)
        common = math.gcd(size_in, SIDE)
        self.blocks = max(each for each in range(1, BLOCKS + 1) if common % each == 0)
        self.stride = size_in // self.blocks
        rows = SIDE // self.blocks
        reach = [np.flatnonzero(weights[b * rows : (b + 1) * rows].any(axis=0)) for b in range(self.blocks)]
        self.pad = max(max(b * self.stride - r[0], r[-1] + 1 - (b + 1) * self.stride) for b, r in enumerate(reach))
        self.window = self.stride + 2 * self.pad
        padded = np.pad(weights, ((0, 0), (self.pad, self.pad)))
        self.weights = np.stack(
            [
                padded[b * rows : (b + 1) * rows, b * self.stride : b * self.stride + self.window]
                for b in range(self.blocks)
            ]
        )
        self.sums = weights.sum(axis=1)


@final
class ScreenBuffers:
    """Tables of one kind of screen, and the buffers of its computation."""

    def __init__(self, palette: Bytes, height: int, width: int, kind: Kind) -> None:
        rows, columns = AxisFilter(height, kind), AxisFilter(width, kind)
        table = grey_table(palette, kind)
        divisor = rows.sums[:, None] * columns.sums[None] * GREY_PARTS[kind]
        exact = exact_in_float32(table, rows.sums, columns.sums, kind)
        dtype, pair = (np.float32, np.complex64) if exact else (np.float64, np.complex128)
        self.table = table.astype(dtype).reshape(-1)
        # Two greys that lie side by side move as one number of twice the size.
        neighbours = np.arange(PAIRS, dtype=np.uint16).view(np.uint8).reshape(PAIRS, 2)
        self.pairs = np.ascontiguousarray(table.diagonal().astype(dtype)[neighbours]).view(pair).reshape(-1)
        self.divisor = divisor.astype(dtype)
        self.half = self.divisor / 2 if kind == "area" else None
        self.row_weights = rows.weights.astype(dtype)
        self.column_weights = columns.weights.astype(dtype).transpose(0, 2, 1).copy()

        grey = np.zeros((height + 2 * rows.pad, width), dtype)
        inner = grey[rows.pad : rows.pad + height]
        self.words, self.grey = inner.reshape(-1, WORD), inner.view(pair)
        self.index = np.zeros((height, width // 2), np.intp)
        middle = np.zeros((SIDE, width + 2 * columns.pad), dtype)
        self.middle = middle[:, columns.pad : columns.pad + width].reshape(rows.blocks, -1, width)
        self.sums = np.empty((SIDE, SIDE), dtype)
        # Views onto the blocks' windows, which overlap where filters reach into the neighbouring block.
        down, across = grey.strides
        self.row_windows = as_strided(
            grey, (rows.blocks, rows.window, width), (rows.stride * down, down, across), writeable=False
        )
        down, across = middle.strides
        self.column_windows = as_strided(
            middle, (columns.blocks, SIDE, columns.window), (columns.stride * across, down, across), writeable=False
        )
        self.split_sums = self.sums.reshape(SIDE, columns.blocks, -1).transpose(1, 0, 2)


@final
class ThreadBuffers(threading.local):
    """Buffers per thread, since two threads cannot share them."""

    def __init__(self, palette: bytes, height: int, width: int, kind: Kind) -> None:
        self.own = ScreenBuffers(np.frombuffer(palette, np.uint8).reshape(256, 3), height, width, kind)


buffers_of_thread = functools.lru_cache(maxsize=8)(ThreadBuffers)  # A process shows one game, tests a few.


@final
class Screen:
    """Turns pairs of raw screens of one size into pictures."""

    def __init__(self, palette: Bytes, height: int, width: int, kind: Kind) -> None:
        self._buffers = buffers_of_thread(palette.tobytes(), height, width, kind)

    def bind(self, one: Bytes, other: Bytes) -> Callable[[FrameStack], None]:
        """A function that draws the present content of two arrays as a stack's next picture; their order is free."""
        return lambda stack: self(one, other, stack.next_slot())

    def __call__(self, older: Bytes, newer: Bytes, out: Bytes) -> None:
        """Write the picture of two screens (height, width) of colour indices into `out` (84, 84)."""
        buffers = self._buffers.own
        buffers.index[...] = newer.view(np.uint16)
        # No index is too large; the mode `raise` would copy the result.
        buffers.pairs.take(buffers.index, out=buffers.grey, mode="clip")
        old, new = older.reshape(-1).view(np.uint64), newer.reshape(-1).view(np.uint64)
        differ = (old != new).nonzero()[0]
        if differ.size:
            both = old.take(differ).view(np.uint8).astype(np.uint16)
            both <<= 8
            both |= new.take(differ).view(np.uint8)
            buffers.words[differ] = buffers.table.take(both).reshape(-1, WORD)
        np.matmul(buffers.row_weights, buffers.row_windows, out=buffers.middle)
        np.matmul(buffers.column_windows, buffers.column_weights, out=buffers.split_sums)
        sums = buffers.sums
        if buffers.half is not None:
            sums += buffers.half
        sums /= buffers.divisor
        np.copyto(out, sums, casting="unsafe")
