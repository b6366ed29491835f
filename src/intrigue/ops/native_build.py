"""Compiles this package's C sources on first use with the local C compiler, and caches the libraries.

Nothing is compiled at install, and no compiler is required: every caller has another path without one. A library is
cached in the user's cache folder under a hash of everything it depends on (source, flags, compiler, processor). Imports
no torch: environment workers use it too.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

FLAGS = ("-O3", "-march=native", "-fPIC", "-w")
COMPILE_SECONDS = 60  # a compiler that takes longer is broken; one second is usual


class CannotCompile(Exception):
    """Why there is no library; callers catch it and take another path."""


def find_compiler() -> str:
    """The command of the local C compiler.

    Raises:
        CannotCompile: there is none.
    """
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        raise CannotCompile("no C compiler found (cc, gcc or clang)")
    return compiler


def load_library(source: Path, flags: tuple[str, ...]) -> ctypes.CDLL:
    """The library of this source, compiled unless it is cached.

    Raises:
        CannotCompile: there is no compiler, or its output cannot be loaded.
    """
    compiler = find_compiler()
    try:
        return ctypes.CDLL(str(_build(compiler, source, FLAGS + flags)))
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotCompile(f"{compiler} could not build it: {error}") from error


def _build(compiler: str, source: Path, flags: tuple[str, ...]) -> Path:
    text = source.read_bytes()
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True, timeout=COMPILE_SECONDS).stdout
    key = b"\0".join([text, version, " ".join(flags).encode(), _processor().encode()])
    path = _folder() / f"{source.stem}-{hashlib.sha256(key).hexdigest()[:16]}.so"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=path.parent) as place:
            fresh, compiled = Path(place) / path.name, Path(place) / f"{source.stem}.o"
            _run(compiler, *flags, "-c", "-o", str(compiled), str(source))
            _run(compiler, "-shared", "-o", str(fresh), str(compiled), "-lm")
            ctypes.CDLL(str(fresh))  # A library that cannot be loaded is not cached.
            os.replace(fresh, path)  # atomic: other processes may build it at the same time
    return path


def _run(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=True, timeout=COMPILE_SECONDS)


def _folder() -> Path:
    """The user's cache folder, or a private temporary folder if that is not writable."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "intrigue"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return _temporary_folder()


def _temporary_folder() -> Path:
    """One folder for all processes of this user; a fresh one if another user owns that name."""
    folder = Path(tempfile.gettempdir()) / f"intrigue-{os.getuid()}"
    with contextlib.suppress(OSError):
        folder.mkdir(exist_ok=True, mode=0o700)
        status = folder.lstat()
        # A library in a folder that others can write to would run with our rights.
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077:
            return folder
    return Path(tempfile.mkdtemp(prefix="intrigue-"))


def _processor() -> str:
    """The processor's model and features, which -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return "".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
