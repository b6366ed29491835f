"""The text format of metrics.csv and episodes.csv: read, checked, and cut back to a checkpoint.

    header\\n  row\\n  row\\n …        columns without quoting; the first is `step`, which never falls; an empty cell is
                                    "not measured", `nan` is a measured NaN

A file whose writer was killed may end in a torn line, one without its newline: readers drop it and say so. Any other
line that does not fit is damage, reported with its number.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path

from intrigue.errors import CheckpointError
from intrigue.run import atomic, disk

EPISODE_COLUMNS = ("step", "frame", "env", "episodic_return", "length", "terminated")
METRIC_COLUMNS = ("step", "frame", "wall_seconds")
CELL_LIMIT = 64  # characters; the longest repr of a float has 24


@dataclass(frozen=True, slots=True)
class Lines:
    """A file taken apart: header, whole lines as bytes, and the torn rest."""

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
        found = ",".join(table.columns)
        raise CheckpointError(f"{path}, line 1: expected {','.join(EPISODE_COLUMNS)}, found {found}")
    return table if table.columns else Table({name: [] for name in EPISODE_COLUMNS}, table.notes)


def cut_back(path: Path, step: int) -> list[str]:
    """Keep the header and the rows up to `step`; returns a note for each thing that was dropped beyond that.

    The file is rewritten in one instant, and only if something changes. Rows after the first one beyond `step` are
    dropped unseen, because steps never fall.

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
