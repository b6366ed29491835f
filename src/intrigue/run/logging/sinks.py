"""Where a run's numbers go: metrics.csv, episodes.csv and eval.csv; `intrigue.run.logging.loggers` knows other places.

Rows are appended whole, one write each; nothing is rewritten except when a new metric widens the table, and then in one
instant. `sync` makes everything so far durable; the driver calls it before each checkpoint, so that a checkpoint never
knows more than the tables beside it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from intrigue.errors import CheckpointError, RunError
from intrigue.run import atomic, disk
from intrigue.run.logging.csv_files import (
    EPISODE_COLUMNS,
    METRIC_COLUMNS,
    cut_back,
    read_episodes,
    read_lines,
    read_metrics,
)
from intrigue.types import Episode

__all__ = ["CsvSink", "EpisodeSink", "cut_back", "read_episodes", "read_metrics"]

# Nothing a spreadsheet would run as a formula, nothing that needs quoting. A leading `-` or `.` would invite both.
METRIC_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_/.-]{0,127}")


class _Appender:
    """A file that grows by whole lines, or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._named = False

    def append(self, text: bytes) -> None:
        with disk.scope("csv"), disk.storage(self.path, len(text)):
            descriptor = self._open()
            length = os.fstat(descriptor).st_size
            try:
                disk.write_all(descriptor, text)
            except BaseException:
                os.ftruncate(descriptor, length)  # a full disk can take half a line; give that half back
                raise

    def sync(self) -> None:
        with disk.scope("csv"), disk.storage(self.path):
            if self._descriptor is not None:
                disk.flush_to_disk(self._descriptor)
                if not self._named:
                    disk.flush_folder(self.path.parent)
                    self._named = True

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        if self._descriptor is None:
            self._descriptor = disk.open_append(self.path)
            self._named = False
        return self._descriptor


class CsvSink:
    """metrics.csv: step, frame, wall_seconds, then one column per metric, in the order they first appeared."""

    def __init__(self, path: Path) -> None:
        self._file = _Appender(path)
        self._columns = _header_of(path)

    def write(self, step: int, frame: int, wall_seconds: float, metrics: Mapping[str, float]) -> None:
        """Append one row; a metric that is not given leaves its cell empty."""
        fresh = [name for name in metrics if name not in self._columns]
        for name in fresh:
            if not METRIC_NAME.fullmatch(name):
                raise RunError(f"metric name {name!r}: letters, digits and _ / . - are accepted; rename the metric")
        values: dict[str, Any] = {**metrics, "step": step, "frame": frame, "wall_seconds": wall_seconds}
        if set(METRIC_COLUMNS) & set(metrics):
            raise RunError(f"a metric must not be called {', '.join(METRIC_COLUMNS)}; rename it")
        head = b""
        if not self._columns:
            self._columns = [*METRIC_COLUMNS, *fresh]
            head = _line(self._columns)
        elif fresh:
            self._widen(fresh)
        cells = [_cell(values.get(name)) for name in self._columns]
        self._file.append(head + _line(cells))

    def sync(self) -> None:
        """Return when every row is on the device."""
        self._file.sync()

    def close(self) -> None:
        """Close the file; the next row opens it again."""
        self._file.close()

    def _widen(self, fresh: Sequence[str]) -> None:
        """Give the table new columns, empty in all earlier rows."""
        self._file.close()
        lines = read_lines(self._file.path)
        empty = b"," * len(fresh)
        columns = [*self._columns, *fresh]
        atomic.write_file(self._file.path, _line(columns) + b"".join(row + empty + b"\n" for row in lines.rows))
        self._columns = columns


class EpisodeSink:
    """episodes.csv: one row per finished episode."""

    def __init__(self, path: Path) -> None:
        self._file = _Appender(path)
        header = _header_of(path)
        if header and tuple(header) != EPISODE_COLUMNS:
            raise CheckpointError(f"{path}, line 1: expected {','.join(EPISODE_COLUMNS)}, found {','.join(header)}")
        self._empty = not header

    def write(self, episode: Episode, frame: int) -> None:
        """Append one episode that ended at this frame."""
        numbers = (float(episode.episodic_return), int(episode.length), int(episode.terminated))
        cells = [_cell(value) for value in (int(episode.step), frame, int(episode.env), *numbers)]
        head = _line(EPISODE_COLUMNS) if self._empty else b""
        self._file.append(head + _line(cells))
        self._empty = False

    def sync(self) -> None:
        """Return when every row is on the device."""
        self._file.sync()

    def close(self) -> None:
        """Close the file; the next row opens it again."""
        self._file.close()


def _header_of(path: Path) -> list[str]:
    """The header of an existing table.

    Raises:
        CheckpointError: the table ends in a torn line, after which nothing may be appended.
    """
    lines = read_lines(path)
    if lines.torn:
        raise CheckpointError(f"{path} ends in a torn line; cut it back to a checkpoint first (`intrigue resume` does)")
    return lines.header


def _line(cells: Sequence[str]) -> bytes:
    return ",".join(cells).encode("ascii") + b"\n"


def _cell(value: float | int | None) -> str:
    """A number as the shortest text that reads back as the same number."""
    if value is None:
        return ""
    return str(value) if type(value) is int else repr(float(value))
