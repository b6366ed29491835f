"""State trees: nested dicts and lists whose leaves are plain values or arrays, and how they become bytes.

A tree is split into JSON (the shape of the tree and every plain value) and a flat mapping of arrays; nothing on the way
back can run code. Arrays are NumPy here; `intrigue.run.checkpoint` does the same with torch tensors.

A tree may hold a `Chunk` wherever it may hold a dict of arrays: a part that never changes, which checkpoints keep in a
file written once. On loading it is a `StoredChunk`, read only when it is needed: a replay need not be in memory twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

State: TypeAlias = Any
"""None, bool, int, float, str, array, or a list or str-keyed dict of these."""

MARK = "$array"


def split(tree: State) -> tuple[Any, dict[str, Any]]:
    """The tree as JSON with a reference where each array stood, and the arrays by reference."""
    arrays: dict[str, Any] = {}

    def walk(node: State, path: str) -> Any:
        match node:
            case None | bool() | int() | float() | str():
                return node
            case dict():
                for key in node:
                    if not isinstance(key, str) or key == MARK:
                        raise TypeError(
                            f"state key {key!r} at {path or 'the root'} must be a string other than {MARK!r}"
                        )
                return {key: walk(value, f"{path}/{key}" if path else key) for key, value in node.items()}
            case list() | tuple():
                return [walk(value, f"{path}/{index}" if path else str(index)) for index, value in enumerate(node)]
            case np.generic():
                return node.item()
            case _ if hasattr(node, "shape") and hasattr(node, "dtype"):
                if path in arrays:
                    raise TypeError(f"two arrays of the state have the same path {path!r}; no key may hold a slash")
                arrays[path] = node
                return {MARK: path}
            case _:
                raise TypeError(f"state at {path or 'the root'} holds a {type(node).__name__}, which cannot be saved")

    return walk(tree, ""), arrays


def join(skeleton: Any, arrays: dict[str, Any]) -> State:
    """The inverse of `split`."""
    if isinstance(skeleton, dict):
        if set(skeleton) == {MARK}:
            return arrays[skeleton[MARK]]
        return {key: join(value, arrays) for key, value in skeleton.items()}
    if isinstance(skeleton, list):
        return [join(value, arrays) for value in skeleton]
    return skeleton


def to_bytes(tree: State) -> bytes:
    """The tree as one safetensors blob, its JSON in the metadata. Arrays are NumPy."""
    skeleton, arrays = split(tree)
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return save_arrays(contiguous, metadata={"tree": json.dumps(skeleton)})


def from_bytes(blob: bytes) -> State:
    """The tree that `to_bytes` wrote."""
    header_length = int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8 : 8 + header_length])
    return join(json.loads(header["__metadata__"]["tree"]), load_arrays(blob))


@dataclass(frozen=True, slots=True)
class StoredAs:
    """The file a chunk was written to: name, bytes, and SHA-256 of them."""

    name: str
    length: int
    sha256: str


class Chunk(dict[str, Any]):
    """Arrays of a series that will not change; `first` increases from chunk to chunk of a series."""

    def __init__(self, series: str, first: int, arrays: Mapping[str, Any]) -> None:
        super().__init__(arrays)
        self.series, self.first = series, first
        self.stored: StoredAs | None = None
        """Its file, once it was written or read."""


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk on disk."""

    stored: StoredAs
    load: Callable[[], dict[str, Any]]
    """The arrays, checked again while they are read."""
