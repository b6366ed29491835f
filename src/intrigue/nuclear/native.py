"""The CPU path: `native.c`, compiled once by this machine's C compiler and run in as many threads as torch uses.

The first call compiles for about a second (`intrigue.ops.native_build`). No compiler is required: without one, `auto`
takes the Gram method, and `intrigue doctor` says so.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import NamedTuple

import torch

from intrigue.nuclear.inputs import CENTERS, Center, MatrixError, MatrixLayout
from intrigue.nuclear.reference import Norms
from intrigue.ops.native_build import CannotCompile, find_compiler, load_library

SOURCE = Path(__file__).with_name("native.c")
# Comparisons with NaN stay exact; only the error number of sqrt and floating-point traps are given up.
FLAGS = ("-fno-math-errno", "-fno-trapping-math")
# Compiled for OpenMP but linked without it: symbols resolve to the OpenMP that torch has loaded, so torch's threads are
# used. A second thread pool would compete with torch's spinning threads for the processors.
THREADED = ("-fopenmp",)
# Handing work to another thread costs some 10 µs; reading this many entries takes ten times as long.
ENTRIES_PER_THREAD = 1 << 15


class NativeLibrary(NamedTuple):
    """The compiled function, or None and the reason."""

    function: ctypes._NamedFuncPointer | None
    reason: str


class _Job(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("first", "table", "index")),
        *((name, ctypes.c_int64) for name in ("inner", "rows", "columns")),
        *((f"stride_{name}", ctypes.c_int64) for name in ("outer", "inner", "row", "column", "table")),
        *((name, ctypes.c_int64) for name in ("is_double", "center")),
        *((name, ctypes.c_void_p) for name in ("ratio", "frobenius", "exponent")),
    )


@functools.cache
def native_library() -> NativeLibrary:
    """The compiled library, built unless it is cached."""
    try:
        function = _load().norms
    except CannotCompile as reason:
        return NativeLibrary(None, str(reason))
    function.argtypes = (ctypes.POINTER(_Job), ctypes.c_int64, ctypes.c_int64)
    function.restype = ctypes.c_int
    return NativeLibrary(function, f"compiled by {find_compiler()}")


def native_norms(layout: MatrixLayout, center: Center) -> Norms:
    """Norms of the float32 or float64 matrices, as `reference_norms`."""
    function = native_library().function
    if function is None:
        reason = native_library().reason
        raise MatrixError(f'method: "native" is not available here: {reason}. Accepted here: "auto", "gram".')
    first, table = layout.first, layout.table
    norms = Norms(
        torch.empty(layout.count, dtype=torch.float64),
        torch.empty(layout.count, dtype=torch.float64),
        torch.empty(layout.count, dtype=torch.int32),
    )
    job = _Job(
        first.data_ptr(), table.data_ptr(), layout.index.data_ptr() if layout.gather else None,
        layout.inner, layout.rows, layout.columns, *layout.strides,
        int(first.dtype == torch.float64), CENTERS.index(center), *(part.data_ptr() for part in norms),
    )  # fmt: skip
    entries = layout.count * layout.rows * layout.columns
    threads = max(1, min(torch.get_num_threads(), entries // ENTRIES_PER_THREAD))
    if function(ctypes.byref(job), layout.count, threads):
        raise MemoryError("no memory for one matrix in float64")
    return norms


def _load() -> ctypes.CDLL:
    try:
        return load_library(SOURCE, FLAGS + THREADED)
    except CannotCompile:
        # Another compiler's OpenMP than torch's, or none: one thread is still faster than anything else here.
        return load_library(SOURCE, FLAGS)
