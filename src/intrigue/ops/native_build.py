"""C sources of this package, compiled once by this machine's own compiler.

Nothing is compiled at install, and nothing is required: whoever uses this has another way where there is no compiler.
A library is kept in the user's cache folder under a name made of everything it depends on, so that another processor,
compiler or version of the source gets its own. Needs no torch: workers compile too.
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
    """No library came of it, and why; never an error to the user by itself."""


def find_compiler() -> str:
    """The command that compiles C here.

    Raises:
        CannotCompile: there is none.
    """
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        raise CannotCompile("no C compiler found (cc, gcc or clang)")
    return compiler


def load(source: Path, flags: tuple[str, ...]) -> ctypes.CDLL:
    """The library of this source, built if this machine has not built it before.

    Raises:
        CannotCompile: there is no compiler, or what it made cannot be used.
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
            ctypes.CDLL(str(fresh))  # What cannot be loaded is not kept.
            os.replace(fresh, path)  # whole or not at all, whoever else builds it meanwhile
    return path


def _run(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=True, timeout=COMPILE_SECONDS)


def _folder() -> Path:
    """A folder of this user alone: the cache folder, or where that cannot be written, one for temporary files."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "intrigue"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return _temporary_folder()


def _temporary_folder() -> Path:
    """One folder for all processes of this user; a fresh one where somebody else has taken its name."""
    folder = Path(tempfile.gettempdir()) / f"intrigue-{os.getuid()}"
    with contextlib.suppress(OSError):
        folder.mkdir(exist_ok=True, mode=0o700)
        found = folder.lstat()
        # A library that another user could write would run in our name.
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077:
            return folder
    return Path(tempfile.mkdtemp(prefix="intrigue-"))


def _processor() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return "".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
