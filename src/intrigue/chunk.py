"""Parts of a state that never change once they are there, so that checkpoints can keep each in a file written once.

A state tree may hold a `Chunk` wherever it may hold a dict of arrays. What has been saved comes back as a
`StoredChunk`, which is read when it is asked for: a replay need not be in memory twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StoredAs:
    """The file a chunk was written to: name, bytes, and SHA-256 of them."""

    name: str
    length: int
    sha256: str


class Chunk(dict[str, Any]):
    """Arrays of a series that will stay as they are; `first` numbers the chunks of a series upwards."""

    def __init__(self, series: str, first: int, arrays: Mapping[str, Any]) -> None:
        super().__init__(arrays)
        self.series, self.first = series, first
        self.stored: StoredAs | None = None
        """Where it lies already, known to whoever wrote or read it."""


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk on disk."""

    stored: StoredAs
    load: Callable[[], dict[str, Any]]
    """The arrays, checked again while they are read."""
