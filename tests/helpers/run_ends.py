"""What two runs of one setting must have in common at their ends."""

from __future__ import annotations

from intrigue.run.checkpoint import snapshot
from intrigue.run.folder import RunFolder

CLOCK = ("wall_seconds", "charts/SPS", "time/collect_fraction", "time/curiosity_fraction")


def kept(path):
    """The digests of a run's snapshots, by their steps."""
    folder = RunFolder(path)
    return {mark: snapshot.load(folder, mark).digest for mark in snapshot.list_marks(folder)}


def told(columns):
    """A table without what a clock wrote."""
    return {name: [repr(each) for each in column] for name, column in columns.items() if name not in CLOCK}
