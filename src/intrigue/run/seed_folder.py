"""The folder of several seeds: an ordinary run folder for each, and nothing else.

    runs/<name>/  seed-0/  seed-1/  …        each as `intrigue.run.folder` describes

It is created as a run is: built under a hidden name, every run with its first checkpoint in it, and then renamed. A
kill at any instant leaves either no folder or one with all its seeds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from intrigue.errors import ConfigError
from intrigue.run import atomic
from intrigue.run import create as run_creation
from intrigue.run.create import StagedRun
from intrigue.run.folder import RunFolder, why_occupied
from intrigue.run.lock import LOCK_NAME, RunLock
from intrigue.run.names import parse_seed_name, seed_folder_name


def seed_runs(path: Path) -> list[Path]:
    """The runs in a folder of seeds, by seed; none where the path is anything else, such as a run."""
    if not path.is_dir() or os.path.lexists(RunFolder(path).checkpoints):
        return []
    runs = {
        seed: entry for entry in path.iterdir() if (seed := parse_seed_name(entry.name)) is not None and entry.is_dir()
    }
    return [runs[seed] for seed in sorted(runs)]


class StagedSeedFolder:
    """A hidden folder of seeds; leaving the context releases its lock and removes it if it was not published."""

    def __init__(self, path: Path, lock: RunLock, targets: Iterator[Path]) -> None:
        self.path = path
        self.lock = lock
        self._targets = targets
        self._published = False
        self._runs: list[StagedRun] = []

    def create(self, seed: int, config: Mapping[str, Any], provenance: Mapping[str, Any]) -> StagedRun:
        """The staged run of one seed, to be entered and, with its first checkpoint, published in this folder."""
        staged = run_creation.create(self.path / seed_folder_name(seed), config, provenance, self.lock.command)
        self._runs.append(staged)
        return staged

    def publish(self) -> list[RunFolder]:
        """Rename the folder to its final place; returns the runs in the order they were created.

        Raises:
            ConfigError: another process took the path meanwhile.
        """
        self.path = run_creation.rename_into_place(self.path, self._targets)
        self._published = True
        self.lock.path = self.path / LOCK_NAME
        for staged in self._runs:
            staged.relocate(self.path / staged.folder.path.name)
        return [staged.folder for staged in self._runs]

    def __enter__(self) -> StagedSeedFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._published:
            atomic.discard_folder(self.path)
        self.lock.release()


def create(path: Path, command: str = "") -> StagedSeedFolder:
    """A hidden folder that will become `path`.

    Raises:
        ConfigError: something is at `path`; the message says what, and what to do.
    """
    path = Path(os.path.abspath(path))
    if refusal := why_occupied(path):
        raise ConfigError(refusal)
    return StagedSeedFolder(*run_creation.create_hidden(path.parent, path.name, command), iter([path]))


def create_numbered(root: Path, stem: str, command: str = "") -> StagedSeedFolder:
    """A hidden folder that will become `root/stem__1`, or the next number that is free when it is published."""
    return StagedSeedFolder(*run_creation.create_hidden(root, stem, command), run_creation.numbered(root, stem))
