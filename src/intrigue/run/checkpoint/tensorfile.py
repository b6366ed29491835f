"""A safetensors file written and read as a stream, hashed on the way.

    8 bytes little-endian header length · JSON header {name: {dtype, shape, data_offsets}} · the arrays' bytes

The layout is the published one (any safetensors reader opens our files, we open theirs). Streaming keeps one array at a
time in flight instead of a second copy of a replay buffer, makes aliased tensors harmless (each is written in full),
and lets the bytes that are loaded be the very bytes that were hashed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from intrigue.errors import CheckpointError
from intrigue.run import disk

HEADER_LIMIT = 100_000_000  # bytes; the safetensors format's own cap
CHUNK_BYTES = 16 * 2**20  # ours: large enough for full disk speed, small enough not to matter in memory
RESERVED = "__metadata__"

NUMPY_CODES: dict[str, Any] = {
    "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "U16": np.uint16, "I16": np.int16, "F16": np.float16,
    "U32": np.uint32, "I32": np.int32, "F32": np.float32, "U64": np.uint64, "I64": np.int64, "F64": np.float64,
    "C64": np.complex64,
}  # fmt: skip
TORCH_CODES: dict[str, torch.dtype] = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "U16": torch.uint16, "I16": torch.int16,
    "F16": torch.float16, "BF16": torch.bfloat16, "U32": torch.uint32, "I32": torch.int32, "F32": torch.float32,
    "U64": torch.uint64, "I64": torch.int64, "F64": torch.float64, "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
}  # fmt: skip
_NUMPY_NAMES = {np.dtype(dtype): code for code, dtype in NUMPY_CODES.items()}
_TORCH_NAMES = {dtype: code for code, dtype in TORCH_CODES.items()}

Bytes = npt.NDArray[np.uint8]


class Hasher(Protocol):
    """What hashlib's objects offer here."""

    def update(self, content: Any, /) -> None: ...
    def hexdigest(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Seal:
    """Length and SHA-256 of a file's content."""

    length: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One array in a file: its name and how to read it."""

    name: str
    code: str
    shape: tuple[int, ...]
    length: int


@dataclass(frozen=True, slots=True)
class Reading:
    """What a file held: its seal, its arrays as bytes (None where not kept), and what is wrong with its layout."""

    seal: Seal
    entries: list[Entry]
    contents: dict[str, Bytes]
    problem: str | None


def describe(name: str, array: Any) -> Entry:
    """The entry of a tensor or NumPy array.

    Raises:
        TypeError: its type cannot be stored; the message says where it stands.
    """
    if isinstance(array, torch.Tensor):
        code = None if array.layout != torch.strided or array.is_meta else _TORCH_NAMES.get(array.dtype)
        width = array.element_size()
    else:
        code = _NUMPY_NAMES.get(array.dtype.newbyteorder("=")) if isinstance(array, np.ndarray) else None
        width = array.dtype.itemsize if isinstance(array, np.ndarray) else 0
    if code is None or name == RESERVED:
        kinds = ", ".join(TORCH_CODES)
        raise TypeError(
            f"array at {name!r} ({type(array).__name__}, {array.dtype}) cannot be stored; accepted: {kinds}"
        )
    shape = tuple(int(size) for size in array.shape)
    return Entry(name, code, shape, math.prod(shape) * width)


def to_bytes(array: Any) -> Bytes:
    """The little-endian bytes of one array, (length,), on the CPU and contiguous."""
    if isinstance(array, torch.Tensor):
        plain = array.detach().cpu().resolve_conj().resolve_neg().contiguous()
        # A single number out of a row counts as contiguous with any stride; its bytes want that stride to be 1.
        flat: Bytes = plain.as_strided((plain.numel(),), (1,)).view(torch.uint8).numpy()
        return flat
    ordered = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
    return ordered.reshape(-1).view(np.uint8)


def to_array(entry: Entry, content: Bytes, *, as_numpy: bool) -> Any:
    """The array whose bytes these are; shares their memory."""
    if as_numpy:
        return content.view(NUMPY_CODES[entry.code]).reshape(entry.shape)
    if not entry.length:
        return torch.empty(entry.shape, dtype=TORCH_CODES[entry.code])
    return torch.from_numpy(content).view(TORCH_CODES[entry.code]).reshape(entry.shape)


def write(path: Path, arrays: Mapping[str, Any]) -> Seal:
    """Write a new file of these arrays to the device; returns the seal of the intended content.

    Raises:
        TypeError: an array of a type that cannot be stored, before the file exists.
    """
    if sys.byteorder != "little":
        raise TypeError("checkpoints are written on little-endian machines only")
    # Widest elements first, as the format's own writer does, so that every array starts at a multiple of its element.
    entries = sorted((describe(name, array) for name, array in arrays.items()), key=lambda e: (-_width(e.code), e.name))
    header = _header(entries)
    if len(header) > HEADER_LIMIT:
        raise TypeError(f"{len(entries)} arrays need a header of {len(header)} bytes; {HEADER_LIMIT} are allowed")
    hasher, length = hashlib.sha256(), 0
    descriptor = disk.open_new(path)
    try:
        for piece in _pieces(header, entries, arrays):
            disk.write_all(descriptor, piece)
            hasher.update(piece)
            length += len(piece)
        disk.flush_to_disk(descriptor)
    finally:
        os.close(descriptor)
    return Seal(length, hasher.hexdigest())


def read(path: Path, *, keep: bool) -> Reading:
    """Everything in a file, its arrays only if `keep`; a layout problem is returned with the seal, not raised.

    Raises:
        CheckpointError: not a plain file, or the device refused to give it.
    """
    hasher = hashlib.sha256()
    entries: list[Entry] = []
    contents: dict[str, Bytes] = {}
    problem: str | None = None
    with FileIO(disk.open_regular(path), "rb") as file:
        length = os.fstat(file.fileno()).st_size
        try:
            try:
                entries = _read_entries(file, length, hasher)
                for entry in entries:
                    content = np.empty(entry.length if keep else min(entry.length, CHUNK_BYTES), dtype=np.uint8)
                    _fill(file, content.data, entry.length, hasher)
                    if keep:
                        contents[entry.name] = content
            except CheckpointError as error:
                problem = f"{path.name}: {error}"
            while rest := file.read(CHUNK_BYTES):
                hasher.update(rest)
        except OSError as error:
            raise CheckpointError(f"{path.name} cannot be read: {error.strerror}") from error
    return Reading(Seal(length, hasher.hexdigest()), entries, contents, problem)


def hash_file(path: Path) -> Seal:
    """Length and SHA-256 of what is on disk now."""
    hasher, length = hashlib.sha256(), 0
    with FileIO(disk.open_regular(path), "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            hasher.update(chunk)
            length += len(chunk)
    return Seal(length, hasher.hexdigest())


def _width(code: str) -> int:
    return TORCH_CODES[code].itemsize


def _header(entries: list[Entry]) -> bytes:
    fields: dict[str, Any] = {RESERVED: {"format": "pt"}}
    offset = 0
    for entry in entries:
        span = [offset, offset + entry.length]
        fields[entry.name] = {"dtype": entry.code, "shape": list(entry.shape), "data_offsets": span}
        offset += entry.length
    text = json.dumps(fields, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % 8)  # the arrays start at a multiple of 8, the widest element


def _pieces(header: bytes, entries: list[Entry], arrays: Mapping[str, Any]) -> Iterator[bytes | memoryview]:
    yield len(header).to_bytes(8, "little") + header
    for entry in entries:
        content = to_bytes(arrays[entry.name]).data
        for start in range(0, len(content), CHUNK_BYTES):
            yield content[start : start + CHUNK_BYTES]


def _fill(file: FileIO, room: memoryview, length: int, hasher: Hasher) -> None:
    """Read exactly `length` bytes into `room`, from its start again when it is smaller (bytes that are not kept)."""
    filled = 0
    while filled < length:
        start = filled % len(room)
        count = file.readinto(room[start : start + min(CHUNK_BYTES, length - filled)])
        if not count:
            raise CheckpointError("ends before its last array")
        hasher.update(room[start : start + count])
        filled += count


def _read_entries(file: FileIO, file_length: int, hasher: Hasher) -> list[Entry]:
    prefix = np.zeros(8, dtype=np.uint8)
    _fill(file, prefix.data, 8, hasher)
    header_length = int.from_bytes(prefix.tobytes(), "little")
    if header_length > min(HEADER_LIMIT, file_length - 8):
        raise CheckpointError(
            f"claims a header of {header_length} bytes; the file has {file_length}, allowed {HEADER_LIMIT}"
        )
    header = np.zeros(header_length, dtype=np.uint8)
    _fill(file, header.data, header_length, hasher)
    try:
        fields = json.loads(header.tobytes(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"header is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise CheckpointError("header is not an object")
    fields.pop(RESERVED, None)
    placed = sorted((_validate_span(name, field), name) for name, field in fields.items())
    entries, offset = [], 0
    for (start, end), name in placed:
        if start != offset:
            raise CheckpointError(
                f"array {name!r} starts at {start}, expected {offset}: arrays overlap or leave a hole"
            )
        entries.append(Entry(name, fields[name]["dtype"], tuple(fields[name]["shape"]), end - start))
        offset = end
    if 8 + header_length + offset != file_length:
        raise CheckpointError(f"arrays end at {8 + header_length + offset}, the file at {file_length}")
    return entries


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a name stands twice")
    return fields


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _validate_span(name: str, field: Any) -> tuple[int, int]:
    """Start and end of one array after every type in its header field was checked."""
    if not isinstance(field, dict) or set(field) != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(f"array {name!r} is not described by dtype, shape and data_offsets")
    code, shape, span = field["dtype"], field["shape"], field["data_offsets"]
    if not isinstance(code, str) or code not in TORCH_CODES:
        raise CheckpointError(f"array {name!r} has the unknown dtype {code!r}")
    if not isinstance(shape, list) or len(shape) > 64 or not all(map(_is_size, shape)):  # 64: NumPy's most dimensions
        raise CheckpointError(f"array {name!r} has the shape {shape!r}")
    if not isinstance(span, list) or len(span) != 2 or not all(map(_is_size, span)):
        raise CheckpointError(f"array {name!r} has the data_offsets {span!r}")
    if span[1] - span[0] != math.prod(shape) * _width(code):
        raise CheckpointError(
            f"array {name!r} spans {span[1] - span[0]} bytes, its shape needs {math.prod(shape) * _width(code)}"
        )
    return span[0], span[1]
