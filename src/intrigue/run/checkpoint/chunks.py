"""Chunks: the parts of a state that never change, each in a file of its own that is written once.

    checkpoints/chunks/<series>-<first, 15 digits>-<16 digits of its SHA-256>.safetensors

A checkpoint names the chunks it needs in its state, by name, length and SHA-256, so its digest covers them. A file is
written under a temporary name, flushed, read back and only then renamed; no file that has a name is ever written to.
A chunk is removed when no kept checkpoint names it any more, after the last one that did.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from intrigue.errors import CheckpointError, RunError, StorageError
from intrigue.run import atomic, canonical, disk
from intrigue.run.checkpoint import tensorfile
from intrigue.run.checkpoint.manifest import STATE, STATE_LIMIT
from intrigue.run.checkpoint.tensorfile import Seal
from intrigue.state import Chunk, State, StoredAs, StoredChunk

FOLDER = "chunks"
MARK = "$chunk"
NAME = re.compile(r"[a-z]{1,20}-\d{15}-[0-9a-f]{16}\.safetensors", re.ASCII)
FIELDS = {"name": str, "length": int, "sha256": str}


def file_name(chunk: Chunk, seal: Seal) -> str:
    """The name of a chunk's file."""
    return f"{chunk.series}-{chunk.first:015d}-{seal.sha256[:16]}.safetensors"


def unwritten_bytes(state: State) -> int:
    """Bytes of the chunks in a state that no file is known to hold."""
    chunks = [chunk for chunk in _chunks_in(state) if chunk.stored is None]
    return sum(tensorfile.describe(name, array).length for chunk in chunks for name, array in chunk.items())


def store(folder: Path, state: State) -> State:
    """The state with a reference in place of every chunk, each of which lies in a file below `folder` now."""
    return _replace_chunks(state, lambda chunk: {MARK: _make_reference(_store_chunk(folder / FOLDER, chunk))})


def strip_chunks(state: State) -> State:
    """The state with None in place of its chunks: what the checkpoint itself has to hold."""
    return _replace_chunks(state, lambda chunk: None)


def list_references(tree: Any) -> list[StoredAs]:
    """The chunks that the tree of a checkpoint names.

    Raises:
        CheckpointError: a reference is not one that `store` writes.
    """
    return [_parse_reference(node[MARK]) for node in _nodes(tree) if set(node) == {MARK}]


def find_problems(folder: Path, needed: Sequence[StoredAs]) -> list[str]:
    """Every problem with the files of these chunks, with the file's name."""
    problems = []
    for stored in needed:
        path = folder / FOLDER / stored.name
        try:
            _read(path, stored, keep=False)
        except CheckpointError as error:
            problems.append(f"{FOLDER}/{error}")
    return problems


def restore(tree: Any, folder: Path) -> Any:
    """The tree with a chunk that can be read in place of every reference."""
    if isinstance(tree, dict):
        if set(tree) == {MARK}:
            stored = _parse_reference(tree[MARK])
            path = folder / FOLDER / stored.name
            return StoredChunk(stored, lambda: _read(path, stored, keep=True))
        return {key: restore(value, folder) for key, value in tree.items()}
    return [restore(value, folder) for value in tree] if isinstance(tree, list) else tree


def remove_unreferenced(folder: Path, kept: Sequence[Path]) -> list[Path]:
    """Remove the chunk files that no checkpoint of `kept` names; nothing if one of these cannot be read."""
    place = folder / FOLDER
    if not place.is_dir():
        return []
    needed: set[str] = set()
    try:
        for path in kept:
            tree = canonical.decode(disk.read_whole(path / STATE, STATE_LIMIT), STATE)
            needed |= {stored.name for stored in list_references(tree)}
    except (CheckpointError, OSError):
        return []
    removed = []
    for name in sorted(os.listdir(place)):
        if name not in needed and NAME.fullmatch(name):
            disk.unlink(place / name)
            removed.append(place / name)
    return removed


def clean_leftovers(folder: Path) -> list[Path]:
    """Remove unfinished writes; returns their paths. Only the holder of the run's lock may call this."""
    place = folder / FOLDER
    names = sorted(os.listdir(place)) if place.is_dir() else []
    leftovers = [place / name for name in names if name.startswith(atomic.TEMPORARY_PREFIX)]
    for path in leftovers:
        disk.unlink(path)
    return leftovers


def _store_chunk(place: Path, chunk: Chunk) -> StoredAs:
    """The file that holds the chunk, written now if it is not there."""
    stored = chunk.stored
    if stored is not None and _length(place / stored.name) == stored.length:
        return stored
    if not place.is_dir():
        disk.make_folder(place)
    temporary = atomic.temporary_path(place / "chunk")
    try:
        try:
            seal = tensorfile.write(temporary, chunk)
        except TypeError as error:
            raise RunError(f"this state cannot be saved: {error}") from error
        found = tensorfile.hash_file(temporary)
        if found != seal:
            raise StorageError(f"{temporary} came back from the disk changed. The disk cannot be trusted.")
        final = place / file_name(chunk, seal)
        if _is_whole(final, seal):  # left by a save that was killed after this
            disk.unlink(temporary)
        else:
            if os.path.lexists(final):
                atomic.quarantine(final)
            disk.rename(temporary, final)
    except BaseException:
        atomic.discard_file(temporary)
        raise
    disk.flush_folder(place)
    chunk.stored = StoredAs(final.name, seal.length, seal.sha256)
    return chunk.stored


def _is_whole(path: Path, seal: Seal) -> bool:
    try:
        return tensorfile.hash_file(path) == seal
    except CheckpointError:
        return False


def _length(path: Path) -> int | None:
    try:
        return os.lstat(path).st_size
    except OSError:
        return None


def _read(path: Path, stored: StoredAs, *, keep: bool) -> dict[str, Any]:
    """The arrays of a chunk, nothing of them unless `keep`.

    Raises:
        CheckpointError: the file is not what was written; the message begins with its name.
    """
    if not os.path.lexists(path):
        raise CheckpointError(f"{stored.name} is missing")
    length = _length(path)
    if length != stored.length:
        raise CheckpointError(f"{stored.name}: expected {stored.length} bytes, found {length}")
    reading = tensorfile.read(path, keep=keep)
    if reading.seal.sha256 != stored.sha256:
        raise CheckpointError(f"{stored.name}: SHA-256 expected {stored.sha256}, found {reading.seal.sha256}")
    if reading.problem:
        raise CheckpointError(reading.problem)
    kept = reading.entries if keep else []
    return {each.name: tensorfile.to_array(each, reading.contents[each.name], as_numpy=False) for each in kept}


def _make_reference(stored: StoredAs) -> dict[str, Any]:
    return {"name": stored.name, "length": stored.length, "sha256": stored.sha256}


def _parse_reference(fields: Any) -> StoredAs:
    """A sealed state may still be hostile: a reference may name a file in this one folder, and nothing else."""
    known = isinstance(fields, dict) and set(fields) == set(FIELDS)
    if not known or any(type(fields[name]) is not kind for name, kind in FIELDS.items()):
        raise CheckpointError(f"{STATE} refers to a chunk by something other than name, length and sha256")
    stored = StoredAs(**fields)
    hexadecimal = re.fullmatch(r"[0-9a-f]{64}", stored.sha256, re.ASCII)
    if not NAME.fullmatch(stored.name) or stored.length < 0 or not hexadecimal:
        raise CheckpointError(f"{STATE} refers to the chunk {stored.name!r}, which is not the name of one")
    return stored


def _replace_chunks(tree: State, exchange: Callable[[Chunk], Any]) -> State:
    if isinstance(tree, Chunk):
        return exchange(tree)
    if isinstance(tree, dict):
        return {key: _replace_chunks(value, exchange) for key, value in tree.items()}
    return [_replace_chunks(value, exchange) for value in tree] if isinstance(tree, list | tuple) else tree


def _chunks_in(tree: State) -> Iterator[Chunk]:
    if isinstance(tree, Chunk):
        yield tree
    elif isinstance(tree, dict | list | tuple):
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from _chunks_in(value)


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Every object in a JSON tree."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
