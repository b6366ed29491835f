"""Atomic changes of files and folders: at every instant either the old or the new is there.

file    unique temporary name in the same folder → write → fsync → rename → fsync the folder
folder  built under a temporary name by the caller → fsync it → rename → fsync the parent
remove  rename to `.trash-…` first, so that a half-deleted folder never looks whole
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from pathlib import Path

from intrigue.errors import StorageError
from intrigue.run import disk

TEMPORARY_PREFIX = ".tmp-"
TRASH_PREFIX = ".trash-"
DAMAGED_PREFIX = ".damaged-"


def temporary_path(path: Path) -> Path:
    """A new unique name in the same folder, which loaders ignore."""
    return path.with_name(f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}")


def write_new(path: Path, content: bytes) -> None:
    """Write a new file and fsync it; the folder is not flushed."""
    descriptor = disk.open_new(path)
    try:
        disk.write_all(descriptor, content)
        disk.flush_to_disk(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, content: bytes) -> None:
    """Replace or create a file atomically.

    Raises:
        StorageError: the disk refused; the former file is as it was.
    """
    temporary = temporary_path(path)
    with disk.fault_scope("file"), disk.storage_errors(path, len(content)):
        try:
            write_new(temporary, content)
            disk.rename(temporary, path)
        except BaseException:
            discard_file(temporary)
            raise
        disk.flush_folder(path.parent)


def publish_folder(temporary: Path, final: Path) -> None:
    """Give a folder whose files are all on the device its final name.

    Raises:
        FileExistsError: something other than an empty folder has that name.
        StorageError: the disk refused.
    """
    with disk.storage_errors(final):
        disk.flush_folder(temporary)
        try:
            disk.rename(temporary, final)
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(final)) from error
            raise
        disk.flush_folder(final.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder and all in it; links inside are removed, never followed."""
    trash = path.with_name(f"{TRASH_PREFIX}{uuid.uuid4().hex}")
    with disk.storage_errors(path):
        disk.rename(path, trash)
        disk.flush_folder(path.parent)
        _delete_tree(trash)


def quarantine(path: Path) -> Path:
    """Rename something damaged to a name that loaders ignore, for inspection; returns the new path."""
    aside = path.with_name(f"{DAMAGED_PREFIX}{path.name}-{uuid.uuid4().hex[:8]}")
    with disk.storage_errors(path):
        disk.rename(path, aside)
        disk.flush_folder(path.parent)
    return aside


def discard_file(path: Path) -> None:
    """Remove an unpublished file as far as the disk lets us; for cleaning up after another failure."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def discard_folder(path: Path) -> None:
    """Remove an unpublished folder as far as the disk lets us; for cleaning up after another failure."""
    with contextlib.suppress(OSError, StorageError):
        _delete_tree(path)


def _delete_tree(path: Path) -> None:
    for place, folders, files in os.walk(path, topdown=False, followlinks=False):
        for name in files:
            disk.unlink(Path(place, name))
        for name in folders:
            inner = Path(place, name)
            if inner.is_symlink():
                disk.unlink(inner)
            else:
                disk.remove_empty_folder(inner)
    disk.remove_empty_folder(path)
