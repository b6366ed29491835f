"""Loggers that receive a copy of every row of metrics.csv and eval.csv: TensorBoard, Weights & Biases, trackio.

The tables are the record. A logger that fails is closed with a warning, and the run continues.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from intrigue.errors import ConfigError, Problem
from intrigue.run.folder import RunFolder
from intrigue.run.logging.trackers import TRACKERS, MetricLogger


def find_installed(names: Iterable[str]) -> tuple[str, ...]:
    """Those whose package is installed; a logger, its package and its extra have one name.

    A folder of that name, as wandb leaves one where it runs, is a package without an origin and does not count.
    """
    specs = {name: importlib.util.find_spec(name) for name in names}
    return tuple(name for name, spec in specs.items() if spec is not None and spec.origin is not None)


def require_installed(names: tuple[str, ...]) -> None:
    """Raise ConfigError with the command that adds each missing package."""
    installed = find_installed(names)
    missing = [name for name in dict.fromkeys(names) if name not in installed]
    if missing:
        raise ConfigError(
            [
                Problem("run.sinks", f"{name} is not installed; add it with `pip install 'intrigue[{name}]'`.")
                for name in missing
            ]
        )


class MetricLoggers:
    """All loggers of one run, each until it fails."""

    def __init__(self, names: Iterable[str], folder: RunFolder, config: Mapping[str, Any], step: int) -> None:
        self._warnings: list[str] = []
        self._loggers: dict[str, MetricLogger] = {}
        for name in dict.fromkeys(names):
            self._try(name, functools.partial(self._open, name, folder, config, step))

    def write(self, step: int, frame: int, wall_seconds: float, metrics: Mapping[str, float]) -> None:
        """Write one row to each."""
        self._each(lambda logger: logger.write(step, frame, wall_seconds, metrics))

    def sync(self) -> None:
        """Flush each."""
        self._each(lambda logger: logger.sync())

    def close(self, *, complete: bool) -> None:
        """Close each; `complete`: the run reached its last step. May be called again."""
        self._each(lambda logger: logger.close(complete=complete))
        self._loggers.clear()

    def pop_warnings(self) -> list[str]:
        """A warning for each logger that failed since the last call."""
        warnings, self._warnings = self._warnings, []
        return warnings

    def _open(self, name: str, folder: RunFolder, config: Mapping[str, Any], step: int) -> None:
        self._loggers[name] = TRACKERS[name](folder, config, step)

    def _each(self, do: Callable[[MetricLogger], None]) -> None:
        for name, logger in list(self._loggers.items()):
            self._try(name, functools.partial(do, logger))

    def _try(self, name: str, do: Callable[[], None]) -> None:
        try:
            do()
        except Exception as error:  # third-party clients may raise anything, and none of it may stop the run
            self._loggers.pop(name, None)
            reason = str(error).strip() or type(error).__name__
            self._warnings.append(f"{name} gets no more metrics ({reason.splitlines()[0]}); metrics.csv goes on")
