"""One writer per run folder: an exclusive lock that the kernel releases when its holder dies, however it dies.

The lock is `flock` on `.lock` inside the folder, so it moves with the folder when that is renamed. The file's content
(JSON: host, pid, since, command) only serves the error of a second process; it is never trusted. The file stays
when the lock is released, because removing it would let two holders lock two different files of one name.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from intrigue.errors import ConfigError, StorageError
from intrigue.run import disk

LOCK_NAME = ".lock"
FORMAT = "intrigue-lock"
CONTENT_LIMIT = 65_536  # bytes read of a lock file; ours, a command line fits
COMMAND_LIMIT = 4_096  # characters of the command kept for the message
PATIENCE_SECONDS = 0.5  # wait for a new holder to write its identity, or for a dead one's children to close the file

_held: set[int] = set()


def _close_in_child() -> None:
    """A forked child must not keep the parent's lock alive; closing its copy does not release the parent's."""
    for descriptor in _held:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)


class RunLock:
    """The right to write into one run folder; a context manager."""

    def __init__(self, folder: Path, command: str = "") -> None:
        self.path = folder / LOCK_NAME
        self.command = command
        self._descriptor: int | None = None

    def acquire(self) -> RunLock:
        """This lock, held.

        Raises:
            ConfigError: another process holds it; the message names that process.
            StorageError: the lock file cannot be opened for writing.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._descriptor is None:
            with disk.storage_errors(self.path):
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                descriptor = os.open(self.path, flags, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                if time.monotonic() > deadline or not _is_dead(read_holder(self.path)):
                    raise ConfigError(self._describe_holder()) from None
                time.sleep(0.01)  # a child forked at its parent's death has yet to run `_close_in_child`
                continue
            except OSError as error:
                os.close(descriptor)
                raise StorageError(f"{self.path} cannot be locked on this file system: {error.strerror}") from error
            if _is_at(descriptor, self.path):
                self._descriptor = descriptor
                _held.add(descriptor)
            else:
                os.close(descriptor)  # the file was replaced between open and lock: lock the new one
        self._write_holder()
        return self

    def release(self) -> None:
        """Release the lock; does nothing if it is not held."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            _held.discard(descriptor)
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
            os.close(descriptor)

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock now."""
        return self._descriptor is not None

    def __enter__(self) -> RunLock:
        return self if self.is_held else self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _write_holder(self) -> None:
        """Write who holds the lock. A full disk is no error here: the lock itself is held."""
        assert self._descriptor is not None
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        holder = {
            "format": FORMAT,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": now,
            "command": self.command[:COMMAND_LIMIT],
        }
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, json.dumps(holder).encode(), 0)

    def _describe_holder(self) -> str:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (holder := read_holder(self.path)) and time.monotonic() < deadline:
            time.sleep(0.01)
        who = "another process"
        if holder:
            who = f"pid {holder['pid']} on host {holder['host']} since {holder['since']}"
            who += f" (`{holder['command']}`)" if holder["command"] else ""
        return (
            f"{self.path.parent} is in use by {who}. One process may write into a run folder; "
            "wait for it, stop it, or choose another folder with --out."
        )


def read_holder(path: Path) -> dict[str, Any]:
    """The holder written in a lock file; empty when that cannot be read."""
    try:
        with open(path, "rb") as file:
            fields = json.loads(file.read(CONTENT_LIMIT))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        return {}
    return {name: str(fields.get(name, ""))[:COMMAND_LIMIT] for name in ("host", "pid", "since", "command")}


def _is_dead(holder: dict[str, Any]) -> bool:
    """Whether the process a lock file names is known to be gone: named, of this host, and not there."""
    if holder.get("host") != socket.gethostname() or not holder["pid"].isdecimal():
        return False
    try:
        os.kill(int(holder["pid"]), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        return False
    return False


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False
