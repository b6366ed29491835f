"""The picture of two screens in compiled C (`screen.c`): the same bytes as `screen`, faster.

A picture costs more than its own time, since the emulator's next frames are slower after it: NumPy's took 53 µs by
itself and made a step 120 µs longer (Xeon Ice Lake, 2.8 GHz). Wide registers are one reason, see FLAGS; large tables
in the processor's cache may be another. Where there is no compiler, or a screen is of another kind than the console's,
pictures come from `screen`.
"""

from __future__ import annotations

import ctypes
import functools
import platform
from collections.abc import Callable
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray

from intrigue.envs.atari.frame_stack import Bytes, FrameStack
from intrigue.envs.atari.protocols import SIDE
from intrigue.envs.atari.screen import GREY_PARTS, Kind, Screen, exact_in_float32, filter_weights, grey_table
from intrigue.ops.native_build import CannotCompile, load_library

SOURCE = Path(__file__).with_name("screen.c")
# Wider registers slow down the emulator's next frames (see `prefer_avx2_blas`): with 256 bits picture and four frames
# took 25 to 31 µs more than the frames alone, with 128 bits 13 to 15 (least of many rounds; Xeon Ice Lake, 2.8 GHz).
FLAGS = ("-mprefer-vector-width=128",) if platform.machine() in ("x86_64", "AMD64") else ()
WIDTH, ACROSS, KEPT = 160, 4, 8  # As in the source.


class _Tables(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("is_double", "down")),
        *((name, ctypes.c_void_p) for name in ("greys", "grey", "column_weights", "column_first")),
        *((name, ctypes.c_void_p) for name in ("row_weights", "row_first", "row_sums", "column_sums")),
        ("rounding", ctypes.c_double),
    )


@functools.cache
def picture_function() -> ctypes._NamedFuncPointer | None:
    """The compiled function, or None where it cannot be compiled."""
    try:
        function = load_library(SOURCE, FLAGS).picture
    except CannotCompile:
        return None
    function.argtypes = (ctypes.c_void_p,) * 4
    function.restype = None
    return function


@final
class Tables:
    """The C function's tables of one kind of screen."""

    def __init__(self, palette: bytes, height: int, kind: Kind) -> None:
        greys = grey_table(np.frombuffer(palette, np.uint8).reshape(256, 3), kind)
        rows, columns = filter_weights(height, SIDE, kind), filter_weights(WIDTH, SIDE, kind)
        row_first, row_weights = band(rows)
        column_first, column_weights = band(columns, ACROSS)
        self.down = row_weights.shape[1]
        row_sums, column_sums = rows.sum(axis=1), columns.sum(axis=1)
        exact = exact_in_float32(greys, row_sums, column_sums, kind)
        arrays = (
            greys.astype(np.uint16),
            greys.diagonal().astype(np.uint16),
            column_weights.astype(np.int16),
            column_first.astype(np.int32),
            row_weights.astype(np.float64),
            row_first.astype(np.int32),
            row_sums.astype(np.float64),
            (column_sums * GREY_PARTS[kind]).astype(np.float64),
        )
        self._arrays = [np.ascontiguousarray(each) for each in arrays]  # Kept: the structure holds addresses alone.
        pointers = (each.ctypes.data for each in self._arrays)
        self._struct = _Tables(not exact, self.down, *pointers, 0.5 if kind == "area" else 0.0)
        self.address = ctypes.addressof(self._struct)


def band(weights: NDArray[np.int64], width: int | None = None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the part of each row that is not zero begins, and that part, all of one width: (SIDE,), (SIDE, width)."""
    filled = weights != 0
    first = filled.argmax(axis=1)
    last = weights.shape[1] - filled[:, ::-1].argmax(axis=1)
    width = width or int((last - first).max())
    first = np.minimum(first, weights.shape[1] - width)
    return first, np.take_along_axis(weights, first[:, None] + np.arange(width), axis=1)


tables_of = functools.lru_cache(maxsize=8)(Tables)  # Shared by all environments of a process with the same screen.


@final
class NativeScreen:
    """As `Screen`."""

    def __init__(self, function: ctypes._NamedFuncPointer, tables: Tables) -> None:
        self._function = function
        self._tables = tables

    def __call__(self, older: Bytes, newer: Bytes, out: Bytes) -> None:
        """As `Screen`."""
        assert older.flags.c_contiguous and newer.flags.c_contiguous and out.flags.c_contiguous
        self._function(self._tables.address, older.ctypes.data, newer.ctypes.data, out.ctypes.data)

    def bind(self, one: Bytes, other: Bytes) -> Callable[[FrameStack], None]:
        """As `Screen.bind`; addresses are looked up once, which at every step would take longer than the call."""
        function, tables = self._function, self._tables.address
        first, second = one.ctypes.data, other.ctypes.data

        def draw(stack: FrameStack, kept: object = (self._tables, one, other)) -> None:
            function(tables, first, second, stack.next_address())

        return draw


def make_screen(palette: Bytes, height: int, width: int, kind: Kind) -> Screen | NativeScreen:
    """The filter of this kind of screen, compiled where that is possible."""
    function = picture_function()
    if function is None or width != WIDTH:
        return Screen(palette, height, width, kind)
    tables = tables_of(palette.tobytes(), height, kind)
    return NativeScreen(function, tables) if tables.down < KEPT else Screen(palette, height, width, kind)
