"""Copies of a run's metrics for those who watch: TensorBoard, Weights & Biases, trackio, as `run.logging.csv_files`
names them.

What counts is in metrics.csv and eval.csv. A copy that cannot be made, or no longer, is put away with a note, and the
run goes on.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from intrigue.errors import ConfigError, Problem
from intrigue.run.folder import RunFolder
from intrigue.run.logging.trackers import TRACKERS, Copy


def installed(names: Iterable[str]) -> tuple[str, ...]:
    """Those of them whose package is there; extras and packages have the sinks' names.

    A folder of that name, as wandb leaves one where it runs, is a package without an origin and does not count.
    """
    found = {name: importlib.util.find_spec(name) for name in names}
    return tuple(name for name, spec in found.items() if spec is not None and spec.origin is not None)


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
        self._notes: list[str] = []
        self._sinks: dict[str, Copy] = {}
        for name in dict.fromkeys(names):
            self._try(name, functools.partial(self._open, name, folder, config, step))

    def write(self, step: int, frame: int, wall_seconds: float, metrics: Mapping[str, float]) -> None:
        """One row to each."""
        self._each(lambda sink: sink.write(step, frame, wall_seconds, metrics))

    def sync(self) -> None:
        """Each writes out what is waiting."""
        self._each(lambda sink: sink.sync())

    def close(self, *, complete: bool) -> None:
        """Each is ended; `complete`: the run reached its last step. May be called again."""
        self._each(lambda sink: sink.close(complete=complete))
        self._sinks.clear()

    def take_notes(self) -> list[str]:
        """Which copies failed since the last call, in words."""
        notes, self._notes = self._notes, []
        return notes

    def _open(self, name: str, folder: RunFolder, config: Mapping[str, Any], step: int) -> None:
        self._sinks[name] = TRACKERS[name](folder, config, step)

    def _each(self, do: Callable[[Copy], None]) -> None:
        for name, sink in list(self._sinks.items()):
            self._try(name, functools.partial(do, sink))

    def _try(self, name: str, do: Callable[[], None]) -> None:
        try:
            do()
        except Exception as error:  # whatever a stranger's client raises, the run does not hang on it
            self._sinks.pop(name, None)
            reason = str(error).strip() or type(error).__name__
            self._notes.append(f"{name} gets no more metrics ({reason.splitlines()[0]}); metrics.csv goes on")
