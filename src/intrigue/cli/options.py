"""How the commands other than `train` read their arguments: a typed function each, turned into options by tyro."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import tyro

from intrigue.config.schema import convert

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
# Whole numbers are accepted as in `train`: 1e6 and 1_000_000 are fine.
Whole = Annotated[int, _WHOLE]
WholeOrNone = Annotated[int | None, _WHOLE]
Plugins = Annotated[
    tyro.conf.UseAppendAction[tuple[Path, ...]],
    tyro.conf.arg(
        name="plugin", metavar="FILE", help="a Python file whose rewards, agents or environments the run uses"
    ),
]


def relative_path(path: Path) -> str:
    """The path relative to the current folder when it lies below it, else unchanged."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def run_command(command: Callable[..., int], name: str, argv: list[str]) -> int:
    """Run a command function with these arguments; wrong ones are reported with exit code 2."""
    return tyro.cli(command, prog=f"intrigue {name}", args=argv, description=inspect.getdoc(command))
