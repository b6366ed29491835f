"""Copies of a run's metrics for those who watch: TensorBoard, Weights & Biases, trackio, as `run.sinks` names them.

What counts is in metrics.csv and eval.csv. A copy that cannot be made, or no longer, is put away with a note, and the
run goes on.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from intrigue.errors import ConfigError, Problem
from intrigue.run import atomic
from intrigue.run.folder import RunFolder
from intrigue.run.names import seed_of
from intrigue.run.sinks import Sink


def installed(names: Iterable[str]) -> tuple[str, ...]:
    """Those of them whose package is there; extras and packages have the sinks' names."""
    return tuple(name for name in names if importlib.util.find_spec(name) is not None)


def require(names: tuple[str, ...]) -> None:
    """Raise ConfigError with the command that adds each missing package."""
    there = installed(names)
    missing = [name for name in dict.fromkeys(names) if name not in there]
    if missing:
        raise ConfigError(
            [
                Problem("run.sinks", f"{name} is not installed; add it with `pip install 'intrigue[{name}]'`.")
                for name in missing
            ]
        )


class Copies:
    """All copies of one run, each until it fails."""

    def __init__(self, names: Iterable[str], folder: RunFolder, config: Mapping[str, Any], step: int) -> None:
        self.notes: list[str] = []
        self._sinks: dict[str, Sink] = {}
        for name in dict.fromkeys(names):
            self._try(name, functools.partial(self._open, name, folder, config, step))

    def write(self, step: int, frame: int, wall_seconds: float, metrics: Mapping[str, float]) -> None:
        """One row to each."""
        self._each(lambda sink: sink.write(step, frame, wall_seconds, metrics))

    def sync(self) -> None:
        """Each writes out what is waiting."""
        self._each(lambda sink: sink.sync())

    def close(self) -> None:
        """Each is ended."""
        self._each(lambda sink: sink.close())
        self._sinks.clear()

    def _open(self, name: str, folder: RunFolder, config: Mapping[str, Any], step: int) -> None:
        module = importlib.import_module(f"intrigue.run.copy_{name}")
        self._sinks[name] = module.open_copy(folder, config, step)

    def _each(self, do: Callable[[Sink], None]) -> None:
        for name, sink in list(self._sinks.items()):
            self._try(name, functools.partial(do, sink))

    def _try(self, name: str, do: Callable[[], None]) -> None:
        try:
            do()
        except Exception as error:  # whatever a stranger's client raises, the run does not hang on it
            self._sinks.pop(name, None)
            reason = str(error).strip() or type(error).__name__
            self.notes.append(f"{name} gets no more metrics ({reason.splitlines()[0]}); metrics.csv goes on")


def title(folder: RunFolder) -> str:
    """The run's name where it stands among others; a seed's folder alone says too little."""
    path = folder.path.resolve()
    return path.name if seed_of(path.name) is None else f"{path.parent.name}-{path.name}"


def identity(folder: RunFolder) -> str:
    """What a run is called where its name alone would not do; the same after a resume, wherever the folder lies."""
    if folder.sinks.exists():
        return str(json.loads(folder.sinks.read_bytes())["id"])
    made = secrets.token_hex(4)
    atomic.write_file(folder.sinks, json.dumps({"id": made}).encode() + b"\n")
    return made
