"""The system calls that change a run on disk, each in one function, so that tests can make every one of them fail.

Test hook: the environment variable INTRIGUE_FAULT = `<scope>:<call>:<n>:<action>` makes the n-th matching call fail.
    scope   a name opened with `fault_scope(...)` (`checkpoint`, `file`, `folder`, `csv`), or `any`
    call    `mkdir open write fsync rename unlink rmdir`, or `any`
    action  `kill` (SIGKILL before the call), `torn` (half of a write, then SIGKILL), or an errno name such as `ENOSPC`
Without the variable the hook costs one dictionary look-up per call.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

from intrigue.errors import CheckpointError, ConfigError, StorageError

FAULT_VARIABLE = "INTRIGUE_FAULT"
HINTS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file is larger than this system allows",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission is denied",
    errno.EPERM: "the operation is not permitted",
    errno.EIO: "the device reported an input/output error",
}
NOT_ALLOWED = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR)  # more room would not help

_scopes: list[str] = []
_calls_seen: dict[str, int] = {}


@contextlib.contextmanager
def fault_scope(name: str) -> Iterator[None]:
    """Calls inside count as `name` for the test hook."""
    _scopes.append(name)
    try:
        yield
    finally:
        _scopes.pop()


def reset_faults() -> None:
    """Start the hook's counting anew; for tests that set the variable more than once in one program."""
    _calls_seen.clear()


def _planned_action(call: str) -> str | None:
    """The action planned for this call by the test hook, if any."""
    plan = os.environ.get(FAULT_VARIABLE)
    if not plan:
        return None
    parts = plan.split(":")
    if len(parts) != 4 or not parts[2].isdigit():
        raise ConfigError(f"{FAULT_VARIABLE}={plan!r} is not `<scope>:<call>:<n>:<action>`; unset it")
    wanted_scope, wanted_call, when, action = parts
    if wanted_scope not in ("any", *_scopes) or wanted_call not in ("any", call):
        return None
    _calls_seen[plan] = _calls_seen.get(plan, 0) + 1
    return action if _calls_seen[plan] == int(when) else None


def _hook(call: str) -> str | None:
    """Kill or raise as planned; returns `torn` for the one action that only a write can carry out."""
    action = _planned_action(call)
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if action not in (None, "kill", "torn"):
        number = getattr(errno, action, None)
        if not isinstance(number, int):
            raise ConfigError(f"{FAULT_VARIABLE}: unknown action {action!r}; use kill, torn or an errno name")
        raise OSError(number, f"{os.strerror(number)} (injected at {call})")
    return action


def make_folder(path: Path) -> None:
    """Create one folder; its permissions follow the umask."""
    _hook("mkdir")
    os.mkdir(path)


def open_new(path: Path) -> int:
    """A descriptor of a file that did not exist before."""
    _hook("open")
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def open_append(path: Path) -> int:
    """A descriptor that writes at the end of a file, made if missing; a symbolic link is refused."""
    _hook("open")
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def write_all(descriptor: int, content: bytes | memoryview) -> None:
    """Write every byte; a short write is continued."""
    view = memoryview(content)
    torn = _hook("write") == "torn"
    if torn:
        view = view[: len(view) // 2]
    while view:
        view = view[os.write(descriptor, view) :]
    if torn:
        os.kill(os.getpid(), signal.SIGKILL)


def flush_to_disk(descriptor: int) -> None:
    """Return only when the content is on the device."""
    _hook("fsync")
    os.fsync(descriptor)


def flush_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flush_to_disk(descriptor)
    finally:
        os.close(descriptor)


def rename(source: Path, target: Path) -> None:
    """Rename a file or folder, atomically."""
    _hook("rename")
    os.rename(source, target)


def unlink(path: Path) -> None:
    """Remove a file's name."""
    _hook("unlink")
    os.unlink(path)


def remove_empty_folder(path: Path) -> None:
    """Remove a folder that holds nothing."""
    _hook("rmdir")
    os.rmdir(path)


def open_regular(path: Path) -> int:
    """A read descriptor of a plain file; links, pipes, sockets and devices are refused."""
    try:
        # O_NONBLOCK: opening a named pipe must not wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        reason = "is a symbolic link" if error.errno == errno.ELOOP else f"cannot be opened: {error.strerror}"
        raise CheckpointError(f"{path.name} {reason}; a plain file is needed") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CheckpointError(f"{path.name} is not a plain file")
    return descriptor


def read_whole(path: Path, limit: int) -> bytes:
    """The content of a plain file of at most `limit` bytes."""
    with open(open_regular(path), "rb") as file:
        try:
            content = file.read(limit + 1)
        except OSError as error:
            raise CheckpointError(f"{path.name} cannot be read: {error.strerror}") from error
    if len(content) > limit:
        raise CheckpointError(f"{path.name} is larger than the {limit} bytes such a file may have")
    return content


def free_bytes(path: Path) -> int | None:
    """Bytes a user may still write where `path` is or would be; None when the system does not say."""
    for place in (path, *path.parents):
        with contextlib.suppress(OSError):
            numbers = os.statvfs(place)
            return numbers.f_bavail * numbers.f_frsize
    return None


@contextlib.contextmanager
def storage_errors(path: Path, needed: int | None = None) -> Iterator[None]:
    """Turn an OSError into a StorageError that names path, needed and free bytes."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        reason = HINTS.get(error.errno or 0, error.strerror or "the system gave no reason")
        free = free_bytes(path)
        sizes = {"needed": needed, "free": free}
        known = "".join(f", {name} {count} bytes" for name, count in sizes.items() if count is not None)
        code = errno.errorcode.get(error.errno or 0, "error")
        advice = "make room or choose another place and start again; a run goes on with `intrigue resume`"
        if error.errno in NOT_ALLOWED:
            advice = "choose a place that can be written to"
        raise StorageError(
            f"cannot write {path}: {reason} ({code}{known}). What was there before is untouched; {advice}."
        ) from error
