"""Checkpoints: the whole state of a run in a folder that is either whole and selected, or not there.

    checkpoints/<step, 12 digits>/tensors.safetensors   every torch tensor and NumPy array of the state tree
                                  state.json            the tree's shape and every plain value, canonical JSON
                                  manifest.json         written last: lengths and SHA-256 of the members
                chunks/                                 what never changes, each part once:
                `intrigue.run.checkpoint.chunks`

A save writes `.tmp-<uuid>/`, flushes each file, reads it back and compares hashes, and only then renames the folder;
nothing that exists is ever written to. The *selected* checkpoint is the one with the highest step (then the highest
generation: when the same step is saved again with other content, the new one is named `<step>-<generation>`, so that
there is no instant without it). Order comes from names, never from clocks. Nothing on the way back can run code.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from intrigue import state as trees
from intrigue.errors import CheckpointError, RunError, StorageError
from intrigue.run import atomic, canonical, disk
from intrigue.run.checkpoint import chunks, tensorfile
from intrigue.run.checkpoint.manifest import (
    MANIFEST,
    MEMBERS,
    SIZE_LIMIT,
    STATE,
    STATE_LIMIT,
    TENSORS,
    Manifest,
    NewerFormat,
    compose,
    parse,
)
from intrigue.run.checkpoint.tensorfile import Seal
from intrigue.run.checkpoint.verify import (
    STEP_DIGITS,
    Checkpoint,
    array_references,
    describe_difference,
    examine,
    folder_name,
    list_checkpoints,
    list_folder,
    seal_bytes,
    step_and_generation,
)
from intrigue.state import State

READ_ATTEMPTS = 5  # reads before giving up; a live run may remove the folder that is being read


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the selected checkpoint is whole, and if not, every problem with it."""

    ok: bool
    step: int | None
    path: Path
    problems: list[str] = field(default_factory=list)


def save(folder: Path, step: int, state: State, *, config_digest: str, meta: Mapping[str, Any], keep: int) -> Path:
    """The folder of a new, verified, selected checkpoint; older ones beyond the newest `keep` are then removed.

    Saving equal content at the same step again changes nothing; a damaged folder of the same step is set aside.

    Raises:
        StorageError: the disk refused; earlier checkpoints are untouched.
        RunError: the state holds something that cannot be saved.
    """
    if not 0 <= step < 10**STEP_DIGITS or keep < 1:
        raise ValueError(f"step {step} must lie in [0, 10^{STEP_DIGITS}) and keep {keep} must be at least 1")
    with disk.fault_scope("checkpoint"), disk.storage_errors(folder / folder_name(step), size_bytes(state)):
        os.makedirs(folder, exist_ok=True)
        state = chunks.store(folder, state)
        temporary = atomic.temporary_path(folder / folder_name(step))
        try:
            written = _write(temporary, step, state, config_digest, meta)
            path = _find_equal(folder, step, written)
            if path is None:
                path = _publish(folder, step, temporary)
            else:
                atomic.discard_folder(temporary)
        except BaseException:
            atomic.discard_folder(temporary)
            raise
        _remove_older(folder, path, keep)
        chunks.remove_unreferenced(folder, list_checkpoints(folder))
    return path


def load(folder: Path, *, on_skip: Callable[[str], None]) -> Checkpoint:
    """The newest whole checkpoint; each damaged newer one is reported to `on_skip`.

    Raises:
        NewerFormat: the newest was written by a later version of this package.
        CheckpointError: there is no whole checkpoint.
    """
    skipped: dict[str, None] = {}
    for _ in range(READ_ATTEMPTS):
        removed = False
        for path in reversed(list_checkpoints(folder)):
            checkpoint, problems = examine(path, keep=True)
            if checkpoint is not None:
                return checkpoint
            if not path.exists():  # removed by the live run meanwhile
                removed = True
                break
            message = f"checkpoint {path} is damaged and was passed over: {'; '.join(problems)}"
            if message not in skipped:
                skipped[message] = None
                on_skip(message)
        if not removed:
            break
    raise CheckpointError(
        f"no whole checkpoint in {folder} ({len(skipped)} damaged). Nothing was started from scratch; "
        "restore the folder from a copy, or train anew in another one."
    )


def verify(folder: Path) -> Verdict:
    """The verdict on the selected checkpoint."""
    for _ in range(READ_ATTEMPTS):
        paths = list_checkpoints(folder)
        if not paths:
            return Verdict(False, None, folder, [f"no checkpoint in {folder}"])
        path = paths[-1]
        try:
            _, problems = examine(path, keep=False)
        except NewerFormat as error:
            problems = [str(error)]
        if not problems or path.exists():
            break
    return Verdict(not problems, step_and_generation(path)[0], path, problems)


def digest(folder: Path) -> str:
    """One SHA-256 over the selected checkpoint's arrays (name, dtype, shape, bytes) and plain values; not over `meta`.

    Raises:
        CheckpointError: the selected checkpoint is missing or damaged.
    """
    verdict = verify(folder)
    if not verdict.ok:
        raise CheckpointError(f"no digest of a damaged checkpoint {verdict.path}: {'; '.join(verdict.problems)}")
    return parse(disk.read_whole(verdict.path / MANIFEST, SIZE_LIMIT)).content_digest()


def quarantine_damaged(folder: Path) -> list[Path]:
    """Rename the damaged checkpoints that are newer than the newest whole one, for inspection; returns their new paths.

    Only the holder of the run's lock may call this. Nothing is moved when no checkpoint is whole.
    """
    damaged: list[Path] = []
    for path in reversed(list_checkpoints(folder)):
        if not examine(path, keep=False)[1]:
            return [atomic.quarantine(each) for each in damaged]
        damaged.append(path)
    return []


def clean_leftovers(folder: Path) -> list[Path]:
    """Remove unfinished saves and removals; returns their paths. Only the holder of the run's lock may call this."""
    prefixes = (atomic.TEMPORARY_PREFIX, atomic.TRASH_PREFIX)
    leftovers = [path for path in list_folder(folder) if path.name.startswith(prefixes)]
    with disk.storage_errors(folder):
        for path in leftovers:
            if path.is_dir() and not path.is_symlink():
                atomic.remove_folder(path)
            else:
                disk.unlink(path)
        return leftovers + chunks.clean_leftovers(folder)


def size_bytes(state: State) -> int:
    """Bytes of all arrays in the state that are not on disk: a lower bound of what a checkpoint of it needs there."""
    arrays = _split(chunks.strip_chunks(state))[1]
    own = sum(tensorfile.describe(name, array).length for name, array in arrays.items())
    return own + chunks.unwritten_bytes(state)


def _split(state: State) -> tuple[Any, dict[str, Any]]:
    try:
        skeleton, arrays = trees.split(state)
        for name, array in arrays.items():
            tensorfile.describe(name, array)
    except TypeError as error:
        raise RunError(f"this state cannot be saved: {error}") from error
    # Two arrays on one path would silently become one.
    if len(array_references(skeleton)) != len(arrays):
        raise RunError("this state cannot be saved: two arrays have the same path; keys must not contain '/'")
    return skeleton, arrays


def _write(temporary: Path, step: int, state: State, config_digest: str, meta: Mapping[str, Any]) -> Manifest:
    """Write and read back all files of a checkpoint under its temporary name; returns what the manifest says."""
    skeleton, arrays = _split(state)
    as_numpy = sorted(name for name, array in arrays.items() if isinstance(array, np.ndarray))
    try:
        content = canonical.encode({"tree": skeleton, "numpy": as_numpy})
    except TypeError as error:
        raise RunError(f"this state cannot be saved: {error}") from error
    if len(content) > STATE_LIMIT:
        raise RunError(
            f"{STATE} would have {len(content)} bytes, {STATE_LIMIT} are allowed; keep large values in arrays"
        )
    disk.make_folder(temporary)
    members = {TENSORS: tensorfile.write(temporary / TENSORS, arrays), STATE: seal_bytes(content)}
    atomic.write_new(temporary / STATE, content)
    for name in MEMBERS:
        _read_back(temporary / name, members[name])
    listed = compose(step, config_digest, members, meta)
    atomic.write_new(temporary / MANIFEST, listed)
    _read_back(temporary / MANIFEST, seal_bytes(listed))
    return parse(listed)


def _read_back(path: Path, expected: Seal) -> None:
    found = tensorfile.hash_file(path)
    if found != expected:
        raise StorageError(
            f"{path} came back from the disk changed: {describe_difference(expected, found)}. "
            "The disk cannot be trusted."
        )


def _find_equal(folder: Path, step: int, written: Manifest) -> Path | None:
    """The whole checkpoint of this step with equal content, if any; damaged ones of this step are set aside."""
    equal = None
    for path in list_checkpoints(folder):
        if step_and_generation(path)[0] != step:
            continue
        try:
            _, problems = examine(path, keep=False)
        except NewerFormat as error:
            problems = [str(error)]
        if problems:
            atomic.quarantine(path)
            continue
        found = parse(disk.read_whole(path / MANIFEST, SIZE_LIMIT))
        same = found.members == written.members and found.config_digest == written.config_digest
        equal = path if same else None  # only the newest generation is selected, so only it may stand in
    return equal


def _publish(folder: Path, step: int, temporary: Path) -> Path:
    taken = [step_and_generation(path)[1] for path in list_checkpoints(folder) if step_and_generation(path)[0] == step]
    path = folder / folder_name(step, max(taken) + 1 if taken else 0)
    try:
        atomic.publish_folder(temporary, path)
    except FileExistsError as error:
        raise StorageError(f"{path} appeared while it was being written: another program works in {folder}") from error
    return path


def _remove_older(folder: Path, newest: Path, keep: int) -> None:
    """Remove earlier generations of this step and all but the newest `keep` checkpoints up to it."""
    older = [path for path in list_checkpoints(folder) if step_and_generation(path) < step_and_generation(newest)]
    superseded = [path for path in older if step_and_generation(path)[0] == step_and_generation(newest)[0]]
    others = [path for path in older if path not in superseded]
    for path in superseded + (others[: -(keep - 1)] if keep > 1 else others):
        if path.is_symlink() or not path.is_dir():
            atomic.quarantine(path)  # not ours: out of the way, but not deleted
        else:
            atomic.remove_folder(path)
