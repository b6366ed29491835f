"""The CPU path: `native.c`, compiled once by this machine's C compiler and run in as many threads as torch uses.

Nothing is compiled at install, and nothing is required: without a compiler `auto` takes the Gram method, and `intrigue
doctor` says so. The first call compiles for about a second; the library is kept in the user's cache folder under a name
made of everything it depends on, so that another processor, compiler or version of the source gets its own.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import torch

from intrigue.nuclear.contract import MatrixError
from intrigue.nuclear.forms import CENTERS, Center
from intrigue.nuclear.reference import Norms
from intrigue.nuclear.source import Source

SOURCE = Path(__file__).with_name("native.c")
# Comparisons with NaN stay exact; only the error number of sqrt and floating-point traps are given up.
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-w")
# Compiled for OpenMP but linked without it: the threads are torch's own, found in the libraries it has loaded. A second
# set of threads would wait for the processors on which torch's spin.
THREADED = ("-fopenmp",)
COMPILE_SECONDS = 60  # a compiler that takes longer is broken; one second is usual
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
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        return Library(None, "no C compiler found (cc, gcc or clang)")
    try:
        function = _load(compiler)
    except (OSError, subprocess.SubprocessError) as error:
        return Library(None, f"{compiler} could not build it: {error}")
    function.argtypes = (ctypes.POINTER(_Job), ctypes.c_int64, ctypes.c_int64)
    function.restype = ctypes.c_int
    return Library(function, f"compiled by {compiler}")


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


def _load(compiler: str) -> ctypes._NamedFuncPointer:
    try:
        return ctypes.CDLL(str(_build(compiler, THREADED))).norms
    except (OSError, subprocess.SubprocessError):
        # Another compiler's OpenMP than torch's, or none: one thread is still faster than anything else here.
        return ctypes.CDLL(str(_build(compiler, ()))).norms


def _run(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=True, timeout=COMPILE_SECONDS)


def _build(compiler: str, threaded: tuple[str, ...]) -> Path:
    source = SOURCE.read_bytes()
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True, timeout=COMPILE_SECONDS).stdout
    key = b"\0".join([source, version, " ".join(FLAGS + threaded).encode(), _processor().encode()])
    path = _folder() / f"nuclear-{hashlib.sha256(key).hexdigest()[:16]}.so"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=path.parent) as place:
            fresh, compiled = Path(place) / path.name, Path(place) / "nuclear.o"
            _run(compiler, *FLAGS, *threaded, "-c", "-o", str(compiled), str(SOURCE))
            _run(compiler, "-shared", "-o", str(fresh), str(compiled), "-lm")
            ctypes.CDLL(str(fresh))  # What cannot be loaded is not kept.
            os.replace(fresh, path)  # whole or not at all, whoever else builds it meanwhile
    return path


def _folder() -> Path:
    """A folder of this user alone: the cache folder, or where that cannot be written, a fresh temporary one."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "intrigue"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return Path(tempfile.mkdtemp(prefix="intrigue-"))


def _processor() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return "".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
