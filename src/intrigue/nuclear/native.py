"""The CPU path: `native.c`, compiled once by this machine's C compiler and run in as many threads as torch uses.

Nothing is compiled at install, and nothing is required: without a compiler `auto` takes the Gram method, and `intrigue
doctor` says so. The first call compiles for about a second (`intrigue.ops.native_build`).
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import NamedTuple

import torch

from intrigue.nuclear.inputs import CENTERS, Center, MatrixError, Source
from intrigue.nuclear.reference import Norms
from intrigue.ops.native_build import CannotCompile, find_compiler, load

SOURCE = Path(__file__).with_name("native.c")
# Comparisons with NaN stay exact; only the error number of sqrt and floating-point traps are given up.
FLAGS = ("-fno-math-errno", "-fno-trapping-math")
# Compiled for OpenMP but linked without it: the threads are torch's own, found in the libraries it has loaded. A second
# set of threads would wait for the processors on which torch's spin.
THREADED = ("-fopenmp",)
# Handing work to another thread costs some 10 µs; reading this many entries takes ten times as long.
ENTRIES_PER_THREAD = 1 << 15


class Library(NamedTuple):
    """The compiled function, or None and the reason why there is none."""

    norms: ctypes._NamedFuncPointer | None
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
def library() -> Library:
    """The compiled library, built if this machine has not built it before."""
    try:
        function = _load().norms
    except CannotCompile as reason:
        return Library(None, str(reason))
    function.argtypes = (ctypes.POINTER(_Job), ctypes.c_int64, ctypes.c_int64)
    function.restype = ctypes.c_int
    return Library(function, f"compiled by {find_compiler()}")


def norms(source: Source, center: Center) -> Norms:
    """Norms of the float32 or float64 matrices, as `reference.norms`."""
    function = library().norms
    if function is None:
        raise MatrixError(f'method: "native" is not available here: {library().reason}. Accepted here: "auto", "gram".')
    first, table = source.first, source.table
    found = Norms(
        torch.empty(source.count, dtype=torch.float64),
        torch.empty(source.count, dtype=torch.float64),
        torch.empty(source.count, dtype=torch.int32),
    )
    job = _Job(
        first.data_ptr(), table.data_ptr(), source.index.data_ptr() if source.gather else None,
        source.inner, source.rows, source.columns, *source.strides,
        int(first.dtype == torch.float64), CENTERS.index(center), *(part.data_ptr() for part in found),
    )  # fmt: skip
    entries = source.count * source.rows * source.columns
    threads = max(1, min(torch.get_num_threads(), entries // ENTRIES_PER_THREAD))
    if function(ctypes.byref(job), source.count, threads):
        raise MemoryError("no memory for one matrix in float64")
    return found


def _load() -> ctypes.CDLL:
    try:
        return load(SOURCE, FLAGS + THREADED)
    except CannotCompile:
        # Another compiler's OpenMP than torch's, or none: one thread is still faster than anything else here.
        return load(SOURCE, FLAGS)
