"""metrics.csv, episodes.csv and eval.csv: written row by row, read and checked, truncated to a checkpoint.

    header\n  row\n  row\n …        columns without quoting; the first is `step`, never decreasing; an empty cell is
                                    "not measured", `nan` is a measured NaN

A file whose writer was killed may end in a torn line, one without its newline: readers drop it with a note. Any other
malformed line is damage, reported with its number.

Rows are appended whole, one write each; a file is only rewritten, atomically, when a new metric adds a column. `sync`
makes all rows durable; a run calls it before each checkpoint, so that the tables are never behind the checkpoint.
`intrigue.run.logging.loggers` sends the same rows elsewhere.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from intrigue.errors import CheckpointError, RunError
from intrigue.run import atomic, disk
from intrigue.types import Episode

EPISODE_COLUMNS = ("step", "frame", "env", "episodic_return", "length", "terminated")
METRIC_COLUMNS = ("step", "frame", "wall_seconds")
CELL_LIMIT = 64  # characters; the longest repr of a float has 24


@dataclass(frozen=True, slots=True)
class Lines:
    """A file split into header, whole lines as bytes, and the torn rest."""

    header: list[str]
    rows: list[bytes]
    torn: bytes


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of a file by name, and a note for whatever was left out."""

    columns: dict[str, list[float]]
    notes: list[str] = field(default_factory=list)


def read_lines(path: Path) -> Lines:
    """The lines of a file; no header and no rows when it is missing, empty, or torn within its header.

    Raises:
        CheckpointError: not a plain file, or its header is not one.
    """
    if not os.path.lexists(path):
        return Lines([], [], b"")
    with open(disk.open_regular(path), "rb") as file:
        *whole, torn = file.read().split(b"\n")
    if not whole:
        return Lines([], [], torn)
    try:
        header = whole[0].decode("ascii").split(",")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}, line 1: the header is garbled") from error
    if header[0] != "step" or len(set(header)) != len(header):
        raise CheckpointError(f"{path}, line 1: the header must start with `step` and name each column once")
    return Lines(header, whole[1:], torn)


def read_metrics(path: Path) -> Table:
    """The columns of metrics.csv, NaN where a cell is empty; a torn last line is left out and noted.

    Raises:
        CheckpointError: a line in the middle does not fit; the message has its number.
    """
    lines = read_lines(path)
    columns: dict[str, list[float]] = {name: [] for name in lines.header}
    last_step = 0
    for number, row in enumerate(lines.rows, start=2):
        values = parse_row(path, number, row, len(lines.header))
        if values[0] < last_step:
            raise CheckpointError(f"{path}, line {number}: step {values[0]:g} follows step {last_step}")
        last_step = int(values[0])
        for name, value in zip(lines.header, values, strict=True):
            columns[name].append(value)
    return Table(columns, [_torn_note(path, lines)] if lines.torn else [])


def read_episodes(path: Path) -> Table:
    """The columns of episodes.csv, `terminated` as 1 or 0; all six are there even when the file is not."""
    table = read_metrics(path)
    if table.columns and tuple(table.columns) != EPISODE_COLUMNS:
        header = ",".join(table.columns)
        raise CheckpointError(f"{path}, line 1: expected {','.join(EPISODE_COLUMNS)}, found {header}")
    return table if table.columns else Table({name: [] for name in EPISODE_COLUMNS}, table.notes)


def truncate_after(path: Path, step: int) -> list[str]:
    """Keep the header and the rows up to `step`; returns a note for each thing that was dropped beyond that.

    The file is rewritten atomically, and only if something changes. Rows after the first one beyond `step` are dropped
    unchecked, because steps never decrease.

    Raises:
        CheckpointError: a line before the cut does not fit; the message has its number.
    """
    lines = read_lines(path)
    notes = [_torn_note(path, lines)] if lines.torn else []
    kept = 0
    last_step = 0
    for number, row in enumerate(lines.rows, start=2):
        row_step = int(parse_row(path, number, row, len(lines.header))[0])
        if row_step > step:
            break
        if row_step < last_step:
            raise CheckpointError(f"{path}, line {number}: step {row_step} follows step {last_step}")
        last_step = row_step
        kept += 1
    if kept < len(lines.rows):
        notes.append(f"{path}: {len(lines.rows) - kept} rows beyond step {step} were cut off")
    if notes:
        text = [",".join(lines.header).encode(), *lines.rows[:kept], b""] if lines.header else []
        atomic.write_file(path, b"\n".join(text))
    return notes


def parse_row(path: Path, number: int, row: bytes, width: int) -> list[float]:
    """The numbers in one line, NaN for an empty cell.

    Raises:
        CheckpointError: it has another number of cells, or a cell is no number.
    """
    cells = row.split(b",")
    if len(cells) != width:
        raise CheckpointError(f"{path}, line {number}: expected {width} cells, found {len(cells)}")
    try:
        if not (cells[0].isdigit() and len(cells[0]) <= CELL_LIMIT):
            raise ValueError(f"step {cells[0]!r} is not a whole number")
        return [_number(cell) for cell in cells]
    except (ValueError, OverflowError) as error:
        raise CheckpointError(f"{path}, line {number}: {error}") from error


def _number(cell: bytes) -> float:
    if not cell:
        return math.nan
    # float() is more lenient than our writer: it takes spaces and underscores.
    if len(cell) > CELL_LIMIT or cell != cell.strip() or b"_" in cell:
        raise ValueError(f"cell {cell[:CELL_LIMIT]!r} is not a number")
    return float(cell)


def _torn_note(path: Path, lines: Lines) -> str:
    number = len(lines.rows) + (2 if lines.header else 1)
    return f"{path}, line {number}: torn last line of {len(lines.torn)} bytes was dropped"


# Nothing a spreadsheet would run as a formula, nothing that needs quoting. A leading `-` or `.` would invite both.
METRIC_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_/.-]{0,127}")


class _Appender:
    """A file that grows by whole lines, or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._is_name_durable = False

    def append(self, text: bytes) -> None:
        with disk.fault_scope("csv"), disk.storage_errors(self.path, len(text)):
            descriptor = self._open()
            length = os.fstat(descriptor).st_size
            try:
                disk.write_all(descriptor, text)
            except BaseException:
                os.ftruncate(descriptor, length)  # a full disk may have taken half a line; remove it
                raise

    def sync(self) -> None:
        with disk.fault_scope("csv"), disk.storage_errors(self.path):
            if self._descriptor is not None:
                disk.flush_to_disk(self._descriptor)
                if not self._is_name_durable:
                    disk.flush_folder(self.path.parent)
                    self._is_name_durable = True

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        if self._descriptor is None:
            self._descriptor = disk.open_append(self.path)
            self._is_name_durable = False
        return self._descriptor


class MetricsCsv:
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
            self._add_columns(fresh)
        cells = [_cell(values.get(name)) for name in self._columns]
        self._file.append(head + _line(cells))

    def sync(self) -> None:
        """Return when every row is durable."""
        self._file.sync()

    def close(self) -> None:
        """Close the file; the next row opens it again."""
        self._file.close()

    def _add_columns(self, fresh: Sequence[str]) -> None:
        """Add columns, empty in all earlier rows."""
        self._file.close()
        lines = read_lines(self._file.path)
        empty = b"," * len(fresh)
        columns = [*self._columns, *fresh]
        atomic.write_file(self._file.path, _line(columns) + b"".join(row + empty + b"\n" for row in lines.rows))
        self._columns = columns


class EpisodesCsv:
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
        """Return when every row is durable."""
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
