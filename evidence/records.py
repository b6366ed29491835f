"""What is written down: rows of results with their labels, and the ledger of batches that were handed out.

A run's rows stand in `results/<name>.csv` when it is complete and in `results/<name>-cut.csv` when it was cut short:
the studies compare runs at the last step of the shortest, so that one that was cut would cut all others.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from evidence.plan import QueueError

LEDGER = "evidence-ledger.csv"
OUT = "out"  # the outcome of a batch that nothing was collected of
GRACE = timedelta(minutes=30)  # beyond its minutes, until a batch that is out counts as lost
Key = tuple[str, ...]


@dataclass(frozen=True)
class Batch:
    """A line of the ledger; `runs` are identities."""

    id: str
    date: str
    commit: str
    minutes: str
    runs: str
    outcome: str

    def is_out(self, now: datetime) -> bool:
        """Whether its runs may still come back."""
        handed = datetime.strptime(self.date, "%Y-%m-%dT%H:%MZ").replace(tzinfo=UTC)
        return self.outcome == OUT and now < handed + timedelta(minutes=float(self.minutes)) + GRACE


@dataclass(frozen=True)
class Rows:
    """The rows of one run, as cells by column."""

    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    source: str

    def cell(self, column: str) -> str:
        """What all its rows have there; of the last, where they differ."""
        return self.lines[-1][self.columns.index(column)]

    @property
    def done(self) -> bool:
        """Whether the run reached its last step."""
        return self.cell("outcome") == "done"

    @property
    def length(self) -> int:
        """Steps or frames at its last row."""
        return int(self.cell("step" if "step" in self.columns else "finetune_frames"))

    @property
    def key(self) -> Key:
        """By what the studies tell runs apart; the second of two with one key would be refused by them."""
        known = [
            name for name in ("game", "task", "preset", "changes", "seed", "snapshot_frames") if name in self.columns
        ]
        return tuple(self.cell(name) for name in known)


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


def stamp(moment: datetime) -> str:
    """A time as the ledger has it."""
    return moment.strftime("%Y-%m-%dT%H:%MZ")


def parse_rows(text: str, source: str) -> dict[str, Rows]:
    """Rows by identity, in the order of the file."""
    header, *lines = csv.reader(text.splitlines())
    missing = {"identity", "commit", "batch", "outcome"} - set(header)
    if missing:
        raise QueueError(f"{source} lacks the columns {', '.join(sorted(missing))}. Accepted: rows of a batch.")
    at = header.index("identity")
    found: dict[str, list[tuple[str, ...]]] = {}
    for number, line in enumerate(lines, start=2):
        if len(line) != len(header):
            raise QueueError(f"{source}, line {number}: {len(line)} cells. Accepted: {len(header)}, as in its header.")
        found.setdefault(line[at], []).append(tuple(line))
    return {identity: Rows(tuple(header), tuple(each), source) for identity, each in found.items()}


def read_results(folder: Path) -> dict[str, dict[str, Rows]]:
    """Of every file of labelled rows, by its name without `.csv`."""
    files = {}
    for path in sorted(folder.glob("*.csv")):
        text = path.read_text(encoding="utf-8")
        if {"identity", "outcome"} <= set(text.partition("\n")[0].split(",")):
            files[path.stem] = parse_rows(text, path.name)
    return files


def write_results(folder: Path, name: str, runs: Iterable[Rows]) -> None:
    """A whole file anew: the old one or the new one is there, whenever this is killed."""
    runs = list(runs)
    if not runs:
        (folder / f"{name}.csv").unlink(missing_ok=True)
        return
    write_whole(folder / f"{name}.csv", [runs[0].columns, *(line for rows in runs for line in rows.lines)])


def read_ledger(folder: Path) -> list[Batch]:
    """Every batch handed out, oldest first."""
    path = folder / LEDGER
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [Batch(**row) for row in csv.DictReader(file)]


def write_ledger(folder: Path, batches: Sequence[Batch]) -> None:
    """The ledger anew, with one line for each batch."""
    write_whole(folder / LEDGER, [tuple(each.name for each in fields(Batch)), *(astuple(each) for each in batches)])


def with_outcome(batches: Sequence[Batch], batch: Batch) -> list[Batch]:
    """The ledger with this batch's outcome; with its line, where a kill came before that was written."""
    if batch.id not in {each.id for each in batches}:
        return [*batches, batch]
    return [replace(each, outcome=batch.outcome) if each.id == batch.id else each for each in batches]


def write_whole(path: Path, lines: Iterable[Sequence[str]]) -> None:
    """A CSV file, by a temporary name."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    fresh = path.with_name(f".{path.name}.new")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(text.getvalue())
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
