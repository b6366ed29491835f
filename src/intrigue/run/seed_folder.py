"""The folder of several seeds: an ordinary run folder for each, and nothing else.

    runs/<name>/  seed-0/  seed-1/  …        each as `intrigue.run.folder` describes

It is born as a run is: built hidden, every run with its first checkpoint in it, and then renamed. A kill at any instant
leaves either no folder or one with all its seeds.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from intrigue.errors import ConfigError
from intrigue.run import atomic
from intrigue.run import create as birth
from intrigue.run.folder import RunFolder, occupied_by
from intrigue.run.lock import LOCK_NAME, RunLock
from intrigue.run.names import seed_name, seed_of


def seed_runs(path: Path) -> list[Path]:
    """The runs in a folder of several seeds, by seed; none where it is something else, a run itself for example."""
    if not path.is_dir() or os.path.lexists(RunFolder(path).checkpoints):
        return []
    found = {seed: entry for entry in path.iterdir() if (seed := seed_of(entry.name)) is not None and entry.is_dir()}
    return [found[seed] for seed in sorted(found)]


class Nest:
    """A folder of seeds that nobody sees yet; leaving the context releases all locks and removes what is hidden."""

    def __init__(self, path: Path, lock: RunLock, targets: Iterator[Path]) -> None:
        self.path = path
        self.lock = lock
        self._targets = targets
        self._published = False
        self._members: list[birth.Staging] = []
        self._open = contextlib.ExitStack()

    def create(self, seed: int, config: Mapping[str, Any], provenance: Mapping[str, Any]) -> birth.Staging:
        """The run folder of one seed, to be published in here once it has its first checkpoint."""
        staging = birth.create(self.path / seed_name(seed), config, provenance, self.lock.command)
        self._members.append(self._open.enter_context(staging))
        return staging

    def publish(self) -> list[RunFolder]:
        """All runs at their final place, visible from one instant to the next, in the order they were made in.

        Raises:
            ConfigError: the place was taken meanwhile.
        """
        self.path = birth.publish_at(self.path, self._targets)
        self._published = True
        self.lock.path = self.path / LOCK_NAME
        for staging in self._members:
            staging.moved(self.path / staging.folder.path.name)
        return [staging.folder for staging in self._members]

    def __enter__(self) -> Nest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()
        if not self._published:
            atomic.discard_folder(self.path)
        self.lock.release()


def create(path: Path, command: str = "") -> Nest:
    """A hidden folder that will become `path`.

    Raises:
        ConfigError: something is at `path`; the message says what, and what to do.
    """
    path = Path(os.path.abspath(path))
    if refusal := occupied_by(path):
        raise ConfigError(refusal)
    return Nest(*birth.claim_hidden(path.parent, path.name, command), iter([path]))


def create_numbered(root: Path, stem: str, command: str = "") -> Nest:
    """A hidden folder that will become `root/stem__1`, or the next number that is free when it is published."""
    return Nest(*birth.claim_hidden(root, stem, command), birth.numbered(root, stem))
