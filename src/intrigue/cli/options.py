"""How the commands other than `train` read their arguments: a typed function each, turned into options by tyro.

Places that a command is told to write to: what cannot be one is refused before the work begins, not after it.

Asking leaves nothing behind. Folders that are missing are made when there is something to write.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import tyro

from intrigue.config.schema import convert
from intrigue.errors import ConfigError, Problem

RunDir = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR", help="the run's folder")]
Switch = tyro.conf.FlagCreatePairsOff[bool]
Json = Annotated[Switch, tyro.conf.arg(name="json", help="print JSON instead of text")]
Quiet = Annotated[Switch, tyro.conf.arg(help="no progress on stderr")]
_WHOLE: tyro.constructors.PrimitiveConstructorSpec[Any] = tyro.constructors.PrimitiveConstructorSpec(
    nargs=1,
    metavar="N",
    instance_from_str=lambda typed: convert(int, typed[0]),
    is_instance=lambda value: value is None or isinstance(value, int),
    str_from_instance=lambda value: [str(value)],
)
# Whole numbers are taken and refused as `train` does it: 1e6 and 1_000_000 are fine.
Whole = Annotated[int, _WHOLE]
WholeOrNone = Annotated[int | None, _WHOLE]
Plugins = Annotated[
    tyro.conf.UseAppendAction[tuple[Path, ...]],
    tyro.conf.arg(
        name="plugin", metavar="FILE", help="a Python file whose rewards, agents or environments the run uses"
    ),
]


def shown(path: Path) -> str:
    """The path as a person would type it here: relative when it lies below the current folder."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def call(command: Callable[..., int], name: str, argv: list[str]) -> int:
    """Run a command function with these arguments; wrong ones are explained and exit with code 2."""
    return tyro.cli(command, prog=f"intrigue {name}", args=argv, description=inspect.getdoc(command))


def file_problems(option: str, path: Path | None) -> list[Problem]:
    """Why no file can be written there; none where it can, or where none is asked for."""
    if path is None:
        return []
    if os.path.isdir(path):
        return [_problem(option, path, "it is a folder")]
    if os.path.exists(path):
        return [] if os.access(path, os.W_OK) else [_problem(option, path, "it may not be changed")]
    return [_problem(option, path, reason) for reason in _folder_reasons(path.parent)]


def folder_problems(option: str, path: Path | None) -> list[Problem]:
    """Why nothing can be written into this folder, which may be missing yet."""
    return [] if path is None else [_problem(option, path, reason) for reason in _folder_reasons(path)]


def refuse_files(**files: Path | None) -> None:
    """Raise ConfigError for those options, such as `json`, whose file cannot be written."""
    if problems := [each for name, path in files.items() for each in file_problems(f"--{name}", path)]:
        raise ConfigError(problems)


def write_text(path: Path, text: str) -> None:
    """Write a file, and the folders above it where they are missing.

    Raises:
        StorageError: the disk refused all the same, for example because it is full; a former file is as it was.
    """
    from intrigue.run.atomic import write_file
    from intrigue.run.disk import storage

    with storage(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() or (path.exists() and not path.is_file()):  # /dev/stdout, say: to be written into
        with storage(path):
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
