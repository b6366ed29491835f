"""Create a run folder atomically: built under a hidden name, locked at once, published by one rename.

with create(path, config, provenance) as staged:
    checkpoint.save(staged.folder.checkpoints, 0, ...)
    run = staged.publish()           # from here on the run exists, and this process holds its lock
    ...                              # train
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from intrigue.errors import CheckpointError, ConfigError, StorageError
from intrigue.run import atomic, disk
from intrigue.run.checkpoint.verify import list_checkpoints
from intrigue.run.folder import RunFolder, why_occupied, write_config, write_provenance
from intrigue.run.lock import LOCK_NAME, RunLock, read_holder

NAME_BYTES = 100  # of the final name kept in the hidden one, so that it stays below the usual 255
ATTEMPTS = 100  # hidden folders to try; one is lost only when another process's `remove_stale` runs before it is locked
_STAGING = re.compile(r"\..*\.[0-9a-f]{32}\.new", re.DOTALL)


class StagedRun:
    """A hidden run folder; leaving the context releases the lock and removes the folder if it was not published."""

    def __init__(self, folder: RunFolder, lock: RunLock, targets: Iterator[Path]) -> None:
        self.folder = folder
        self.lock = lock
        self._targets = targets
        self._published = False

    def publish(self) -> RunFolder:
        """The run folder, renamed to its final place.

        Raises:
            ConfigError: another process took the path meanwhile.
            CheckpointError: there is no first checkpoint yet.
        """
        if not list_checkpoints(self.folder.checkpoints):
            raise CheckpointError(
                f"{self.folder.path} has no checkpoint yet; a run is published only with its first one"
            )
        target = rename_into_place(self.folder.path, self._targets)
        self._published = True
        self.relocate(target)
        return self.folder

    def relocate(self, path: Path) -> None:
        """Follow the folder to this path after it, or the folder around it, was renamed."""
        self.folder = RunFolder(path)
        self.lock.path = path / LOCK_NAME

    def __enter__(self) -> StagedRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._published:
            atomic.discard_folder(self.folder.path)
        self.lock.release()


def create(path: Path, config: Mapping[str, Any], provenance: Mapping[str, Any], command: str = "") -> StagedRun:
    """A hidden run folder that will become `path`, with its settings written and its lock held.

    Raises:
        ConfigError: something is at `path`; the message says what, and what to do.
        StorageError: the disk refused; nothing is left behind.
    """
    path = Path(os.path.abspath(path))
    if refusal := why_occupied(path):
        raise ConfigError(refusal)
    return _build(path.parent, path.name, iter([path]), config, provenance, command)


def create_numbered(
    root: Path, stem: str, config: Mapping[str, Any], provenance: Mapping[str, Any], command: str = ""
) -> StagedRun:
    """A hidden run folder that will become `root/stem__1`, or the next number that is free when it is published."""
    return _build(root, stem, numbered(root, stem), config, provenance, command)


def create_hidden(parent: Path, name: str, command: str) -> tuple[Path, RunLock]:
    """A new hidden folder in `parent` and its lock; hidden folders of dead processes are removed first."""
    with disk.fault_scope("folder"), disk.storage_errors(parent):
        _make_parent(parent)
        remove_stale(parent)
        return _claim(parent, name, command)


def rename_into_place(hidden: Path, targets: Iterable[Path]) -> Path:
    """Rename the hidden folder to the first of these paths that is free; returns that path.

    Raises:
        ConfigError: other processes took all of them meanwhile.
    """
    with disk.fault_scope("folder"):
        for target in targets:
            try:
                atomic.publish_folder(hidden, target)
            except FileExistsError:
                refusal = why_occupied(target)
                continue
            return target
    raise ConfigError(refusal or f"{target} was taken by another process meanwhile; start again")


def numbered(root: Path, stem: str) -> Iterator[Path]:
    """`root/stem__1` and on, skipping those that exist when the iterator reaches them."""
    targets = (root / f"{stem}__{number}" for number in itertools.count(1))
    return (target for target in targets if not os.path.lexists(target))


def _build(
    parent: Path,
    name: str,
    targets: Iterator[Path],
    config: Mapping[str, Any],
    provenance: Mapping[str, Any],
    command: str,
) -> StagedRun:
    with disk.fault_scope("folder"), disk.storage_errors(parent):
        path, lock = create_hidden(parent, name, command)
        try:
            run = RunFolder(path)
            write_config(run, config)
            write_provenance(run, provenance)
            disk.make_folder(run.checkpoints)
        except BaseException:
            atomic.discard_folder(path)
            lock.release()
            raise
    return StagedRun(run, lock, targets)


def _make_parent(parent: Path) -> None:
    try:
        os.makedirs(parent, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise ConfigError(f"{parent} is not a folder, so no run can be put into it; choose another place") from error


def _claim(parent: Path, name: str, command: str) -> tuple[Path, RunLock]:
    """A new hidden folder and its lock, both held by this process alone."""
    shown = name.encode("utf-8", "surrogateescape")[:NAME_BYTES].decode("utf-8", "ignore")
    for _ in range(ATTEMPTS):
        path = parent / f".{shown}.{uuid.uuid4().hex}.new"
        disk.make_folder(path)
        lock = RunLock(path, command)
        try:
            return path, lock.acquire()
        except ConfigError:
            continue  # another process's `remove_stale` took the folder before it was locked
        except StorageError as error:
            cause = error.__cause__
            if not (isinstance(cause, OSError) and cause.errno == errno.ENOENT):
                atomic.discard_folder(path)
                raise
    raise StorageError(f"{parent}: {ATTEMPTS} new folders were removed by another process before they could be used")


def remove_stale(parent: Path) -> list[Path]:
    """Remove hidden folders of dead processes; those of living processes, and folders not made here, stay."""
    removed = []
    for path in sorted(parent.iterdir()):
        if _STAGING.fullmatch(path.name) and path.is_dir() and not path.is_symlink() and _remove_if_stale(path):
            removed.append(path)
    return removed


def _remove_if_stale(path: Path) -> bool:
    names = {entry.name for entry in path.iterdir()}
    if not names:
        with contextlib.suppress(OSError):  # fails if its creator adds the lock file right now
            disk.remove_empty_folder(path)
            return True
        return False
    holder = read_holder(path / LOCK_NAME)
    if LOCK_NAME not in names or not (holder or names == {LOCK_NAME}):
        return False
    with contextlib.suppress(ConfigError, StorageError), RunLock(path):
        atomic.remove_folder(path)
        return True
    return False
