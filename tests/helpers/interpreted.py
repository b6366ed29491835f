"""What a script found out about Triton's kernels, once for all test processes of a session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock


def found_by(script: str, tmp_path_factory: pytest.TempPathFactory, *given: Path | str) -> Path:
    """What `tests/SCRIPT GIVEN... FILE` wrote into its file; test processes side by side share it."""
    pytest.importorskip("triton", reason="Triton is published for Linux only")
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # of the whole session; each process has its own below
    file = folder / "_".join((script, *(each for each in given if isinstance(each, str)), "found"))
    with FileLock(f"{file}.lock"):
        if not file.exists():
            unfinished = file.with_name(f"{file.name}.unfinished")
            command = [sys.executable, str(Path(__file__).with_name(script)), *map(str, given), str(unfinished)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr[-3000:]
            unfinished.rename(file)
    return file
