"""A folder of exported episodes, published atomically, with a file that holds the hash of every other.

    export.json     format, where the episodes come from, their sizes, and the SHA-256 of every file

Folders written by other tools have no such file; then only the checks of their format apply.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intrigue.errors import CheckpointError, ConfigError, Problem
from intrigue.run import atomic, canonical, disk

SEAL = "export.json"
SEAL_LIMIT = 2**28  # bytes; ours: about a hundred for each file
BLOCK = 2**20


@dataclass(frozen=True, slots=True)
class Sealed:
    """An exported folder and the contents of its seal; `about` is None without one."""

    folder: Path
    about: Mapping[str, Any] | None

    def content(self, name: str) -> bytes:
        """A file's bytes, checked against the seal."""
        path = self.folder / name
        content = disk.read_whole(path, os.lstat(path).st_size)
        self._compare(name, hashlib.sha256(content).hexdigest())
        return content

    def check(self, name: str) -> None:
        """Check a file against the seal without loading it whole."""
        if self.about is not None:
            self._compare(name, _hash_of(self.folder / name))

    def _compare(self, name: str, found: str) -> None:
        if self.about is None:
            return
        expected = self.about["files"].get(name)
        if expected is None:
            raise CheckpointError(f"{self.folder}: {name} is not one of the files that were exported here")
        if expected != found:
            raise CheckpointError(f"{self.folder}: {name} is damaged: SHA-256 expected {expected}, found {found}")


def open_sealed(folder: Path) -> Sealed:
    """The folder, with all sealed files present.

    Raises:
        ConfigError: there is no such folder.
        CheckpointError: a file is missing, or the seal is damaged.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder. Give one that `intrigue export` wrote, or one of ExORL's.")
    if not (folder / SEAL).exists():
        return Sealed(folder, None)
    about = canonical.decode(disk.read_whole(folder / SEAL, SEAL_LIMIT), SEAL)
    files = about.get("files") if isinstance(about, dict) else None
    if not isinstance(files, dict) or hashlib.sha256(_encoded(about)).hexdigest() != about.get("seal"):
        raise CheckpointError(f"{folder}: {SEAL} is damaged; restore it from a copy, or export anew")
    missing = [name for name in files if not (folder / name).is_file()]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise CheckpointError(f"{folder}: missing {', '.join(sorted(missing)[:3])}{more}")
    return Sealed(folder, about)


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A temporary folder that becomes `target` on success and is removed otherwise.

    Raises:
        ConfigError: `target` is taken.
        StorageError: writing failed.
    """
    refuse_taken(target)
    target = Path(os.path.abspath(target))
    temporary = atomic.temporary_path(target)
    with disk.fault_scope("folder"), disk.storage_errors(target):
        os.makedirs(target.parent, exist_ok=True)
        disk.make_folder(temporary)
        try:
            yield temporary
            atomic.publish_folder(temporary, target)
        except FileExistsError as error:
            raise ConfigError([Problem("--to", f"{target} appeared while it was being written.")]) from error
        finally:
            if temporary.exists():
                atomic.discard_folder(temporary)


def refuse_taken(target: Path) -> None:
    """Raise ConfigError unless `target` is free or an empty folder."""
    if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise ConfigError([Problem("--to", f"{target} exists already; give a folder that does not.")])


def seal(folder: Path, names: list[str], about: Mapping[str, Any]) -> None:
    """Write the seal: `about`, and the hash of every file."""
    fields = {**about, "files": {name: _hash_of(folder / name) for name in names}}
    fields["seal"] = hashlib.sha256(_encoded(fields)).hexdigest()
    write_member(folder / SEAL, canonical.encode(fields, indent=1) + b"\n")


def write_member(path: Path, content: bytes) -> None:
    """Write a new file and flush it to disk."""
    atomic.write_new(path, content)


def _encoded(about: Mapping[str, Any]) -> bytes:
    return canonical.encode({name: value for name, value in about.items() if name != "seal"})


def _hash_of(path: Path) -> str:
    digest = hashlib.sha256()
    with open(disk.open_regular(path), "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
