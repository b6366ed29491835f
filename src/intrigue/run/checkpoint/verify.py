"""Read a checkpoint folder without trusting it: names, files, seals, and how its members fit together.

A folder passes only if it holds exactly the three plain files, each of the length and SHA-256 the manifest states, the
manifest is sealed and fits the folder's name, the arrays are exactly those the state refers to, and every chunk it
names is there, of the length and SHA-256 stated.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intrigue import state as trees
from intrigue.errors import CheckpointError
from intrigue.run import canonical, disk
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
    parse,
)
from intrigue.run.checkpoint.tensorfile import Seal
from intrigue.state import State

STEP_DIGITS = 12
_PUBLISHED = re.compile(rf"(\d{{{STEP_DIGITS}}})(?:-(\d{{1,6}}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A whole checkpoint."""

    path: Path
    step: int
    state: State
    config_digest: str
    meta: Mapping[str, Any]


def list_checkpoints(folder: Path) -> list[Path]:
    """Every published checkpoint, whole or not, oldest first."""
    return sorted((path for path in list_folder(folder) if _PUBLISHED.fullmatch(path.name)), key=step_and_generation)


def folder_name(step: int, generation: int = 0) -> str:
    """The name of a published checkpoint; generations after the first carry a suffix."""
    return f"{step:0{STEP_DIGITS}d}" + (f"-{generation}" if generation else "")


def step_and_generation(path: Path) -> tuple[int, int]:
    """(step, generation) of a published name."""
    match = _PUBLISHED.fullmatch(path.name)
    assert match is not None
    return int(match[1]), int(match[2] or 0)


def list_folder(folder: Path) -> list[Path]:
    """The entries of a folder, by name; none if it does not exist."""
    try:
        return [folder / name for name in sorted(os.listdir(folder))]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be listed: {error.strerror}") from error


def seal_bytes(content: bytes) -> Seal:
    """The seal of a file with this content."""
    return Seal(len(content), hashlib.sha256(content).hexdigest())


def describe_difference(expected: Seal, found: Seal) -> str:
    """How two seals differ, in words."""
    if expected.length != found.length:
        return f"expected {expected.length} bytes, found {found.length}"
    return f"SHA-256 expected {expected.sha256}, found {found.sha256}"


def array_references(skeleton: Any) -> list[Any]:
    """The array references in a skeleton, in any order."""
    found, waiting = [], [skeleton]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict) and set(node) == {trees.MARK}:
            found.append(node[trees.MARK])
        elif isinstance(node, dict):
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
    return found


def examine(path: Path, *, keep: bool) -> tuple[Checkpoint | None, list[str]]:
    """The checkpoint, with its state only if `keep`, or None and every problem found."""
    problems: list[str] = []
    try:
        manifest = _read_manifest(path, problems)
        if manifest.step != step_and_generation(path)[0]:
            problems.append(
                f"the folder is named for step {step_and_generation(path)[0]}, {MANIFEST} says {manifest.step}"
            )
        tree = _read_state(path, manifest, problems)
        reading = _read_tensors(path, manifest, problems, keep=keep)
        if tree is not None:
            problems += chunks.find_problems(path.parent, chunks.list_references(tree["tree"]))
    except NewerFormat:
        raise
    except CheckpointError as error:
        return None, [*problems, str(error)]
    except OSError as error:
        return None, [*problems, f"{path.name} cannot be read: {error.strerror}"]
    if problems or reading is None or tree is None:
        return None, problems
    problems += _mismatches(tree, reading)
    if problems:
        return None, problems
    state = chunks.restore(trees.join(tree["tree"], _arrays(tree, reading)), path.parent) if keep else None
    return Checkpoint(path, manifest.step, state, manifest.config_digest, manifest.meta), []


def _read_manifest(path: Path, problems: list[str]) -> Manifest:
    if path.is_symlink() or not path.is_dir():
        raise CheckpointError(f"{path.name} is not a folder")
    names = {each.name for each in list_folder(path)}
    expected = {*MEMBERS, MANIFEST}
    problems += [f"{name} is missing" for name in sorted(expected - names)]
    problems += [f"{name} does not belong into a checkpoint" for name in sorted(names - expected)]
    for name in sorted(names & expected):
        if not stat.S_ISREG(os.lstat(path / name).st_mode):
            problems.append(f"{name} is not a plain file")
    if problems:
        raise CheckpointError(f"expected exactly {', '.join(sorted(expected))}")
    return parse(disk.read_whole(path / MANIFEST, SIZE_LIMIT))


def _read_state(path: Path, manifest: Manifest, problems: list[str]) -> dict[str, Any] | None:
    content = disk.read_whole(path / STATE, STATE_LIMIT)
    found, expected = seal_bytes(content), manifest.members[STATE]
    if found != expected:
        problems.append(f"{STATE}: {describe_difference(expected, found)}")
        return None
    tree = canonical.decode(content, STATE)
    if not isinstance(tree, dict) or set(tree) != {"tree", "numpy"} or not isinstance(tree["numpy"], list):
        problems.append(f"{STATE} does not hold `tree` and `numpy`")
        return None
    return tree


def _read_tensors(path: Path, manifest: Manifest, problems: list[str], *, keep: bool) -> tensorfile.Reading | None:
    expected = manifest.members[TENSORS]
    length = os.lstat(path / TENSORS).st_size
    if length != expected.length:  # before reading: a file of another length is not worth its reading time
        problems.append(f"{TENSORS}: expected {expected.length} bytes, found {length}")
        return None
    reading = tensorfile.read(path / TENSORS, keep=keep)
    if reading.seal != expected:
        problems.append(f"{TENSORS}: {describe_difference(expected, reading.seal)}")
    elif reading.problem:
        problems.append(reading.problem)
    return reading


def _mismatches(tree: dict[str, Any], reading: tensorfile.Reading) -> list[str]:
    """Disagreements between the two members, each whole by itself."""
    stored = {entry.name: entry.code for entry in reading.entries}
    referred = array_references(tree["tree"])
    problems = []
    if not all(isinstance(name, str) for name in [*referred, *tree["numpy"]]):
        return [f"{STATE} refers to an array by something other than a name"]
    if set(referred) != set(stored) or len(referred) != len(stored):
        problems.append(f"{STATE} refers to {len(referred)} arrays, {TENSORS} holds {len(stored)}, and they differ")
    for name in tree["numpy"]:
        if stored.get(name) not in tensorfile.NUMPY_CODES:
            problems.append(f"{STATE} wants {name!r} as a NumPy array, {TENSORS} holds it as {stored.get(name)}")
    return problems


def _arrays(tree: dict[str, Any], reading: tensorfile.Reading) -> dict[str, Any]:
    as_numpy = set(tree["numpy"])
    return {
        entry.name: tensorfile.to_array(entry, reading.contents[entry.name], as_numpy=entry.name in as_numpy)
        for entry in reading.entries
    }
