"""Output paths of commands, checked before the work begins.

The check creates nothing. Missing folders are created when there is something to write.
"""

from __future__ import annotations

import os
from pathlib import Path

from intrigue.errors import ConfigError, Problem
from intrigue.run.atomic import write_file
from intrigue.run.disk import storage_errors


def check_file(option: str, path: Path | None) -> list[Problem]:
    """The problems of writing a file there; none where it can be written, or no path is given."""
    if path is None:
        return []
    if os.path.isdir(path):
        return [_problem(option, path, "it is a folder")]
    if os.path.exists(path):
        return [] if os.access(path, os.W_OK) else [_problem(option, path, "it may not be changed")]
    return [_problem(option, path, reason) for reason in _folder_reasons(path.parent)]


def check_folder(option: str, path: Path | None) -> list[Problem]:
    """The problems of writing into this folder, which need not exist yet."""
    return [] if path is None else [_problem(option, path, reason) for reason in _folder_reasons(path)]


def require_writable(**files: Path | None) -> None:
    """Raise ConfigError for those options, such as `json`, whose file cannot be written."""
    if problems := [each for name, path in files.items() for each in check_file(f"--{name}", path)]:
        raise ConfigError(problems)


def write_text(path: Path, text: str) -> None:
    """Write a file, and the folders above it where they are missing.

    Raises:
        StorageError: the write failed, for example because the disk is full; a former file is unchanged.
    """
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() or (path.exists() and not path.is_file()):  # /dev/stdout, say: to be written into
        with storage_errors(path):
            path.write_text(text, encoding="utf-8")
    else:
        write_file(path, text.encode())


def _folder_reasons(folder: Path) -> list[str]:
    """Why no file can be created in this folder: the nearest existing folder above decides."""
    existing = next((each for each in (folder, *folder.parents) if os.path.lexists(each)), Path())
    if not os.path.isdir(existing):
        return [f"{existing} is not a folder"]
    return [] if os.access(existing, os.W_OK | os.X_OK) else [f"nothing may be written in {existing}"]


def _problem(option: str, path: Path, reason: str) -> Problem:
    return Problem(option, f"{path} cannot be written: {reason}. Name another place.")
