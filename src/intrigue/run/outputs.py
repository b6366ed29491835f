"""Files and folders that a command is told to write to: what cannot be one is refused before the work begins.

Asking leaves nothing behind. Folders that are missing are made when there is something to write.
"""

from __future__ import annotations

import os
from pathlib import Path

from intrigue.errors import ConfigError, Problem
from intrigue.run.atomic import write_file
from intrigue.run.disk import storage_errors


def check_file(option: str, path: Path | None) -> list[Problem]:
    """Why no file can be written there; none where it can, or where none is asked for."""
    if path is None:
        return []
    if os.path.isdir(path):
        return [_problem(option, path, "it is a folder")]
    if os.path.exists(path):
        return [] if os.access(path, os.W_OK) else [_problem(option, path, "it may not be changed")]
    return [_problem(option, path, reason) for reason in _folder_reasons(path.parent)]


def check_folder(option: str, path: Path | None) -> list[Problem]:
    """Why nothing can be written into this folder, which may be missing yet."""
    return [] if path is None else [_problem(option, path, reason) for reason in _folder_reasons(path)]


def require_writable(**files: Path | None) -> None:
    """Raise ConfigError for those options, such as `json`, whose file cannot be written."""
    if problems := [each for name, path in files.items() for each in check_file(f"--{name}", path)]:
        raise ConfigError(problems)


def write_text(path: Path, text: str) -> None:
    """Write a file, and the folders above it where they are missing.

    Raises:
        StorageError: the disk refused all the same, for example because it is full; a former file is as it was.
    """
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() or (path.exists() and not path.is_file()):  # /dev/stdout, say: to be written into
        with storage_errors(path):
            path.write_text(text, encoding="utf-8")
    else:
        write_file(path, text.encode())


def _folder_reasons(folder: Path) -> list[str]:
    """What keeps a file from being made in this folder: the nearest folder above that is there decides."""
    there = next((each for each in (folder, *folder.parents) if os.path.lexists(each)), Path())
    if not os.path.isdir(there):
        return [f"{there} is not a folder"]
    return [] if os.access(there, os.W_OK | os.X_OK) else [f"nothing may be written in {there}"]


def _problem(option: str, path: Path, reason: str) -> Problem:
    return Problem(option, f"{path} cannot be written: {reason}. Name another place.")
