"""The ring of rows: every frame stored once, linked into episodes.

A row is one state of one environment and the transition from it. Rows of all environments share one ring in order of
time. They are numbered from 0 on and never renumbered; row r is stored in place r mod size.

    frame      the new part of the state: its newest image, or the whole state
    back       rows back to the previous state of the episode; 0 for its first
    ahead      rows ahead to the successor state
    end        true for the state in which an episode ended, from which no action was taken
    action, reward, terminated, truncated, valid, skill     of the transition from the state

A stack of k frames follows `back` k − 1 times: in the first state of an episode that is k times the same frame, so no
stack contains frames of another episode. `ahead` leads to the true successor, also where the episode ends.

Rows are overwritten in chunks of `chunk` rows: all of a chunk expires when the ring wraps around to its first row, so
the ring always holds whole chunks and the one that is being filled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from intrigue.spaces import Array, Spaces

CHUNKS = 128  # ours: a checkpoint rewrites at most one chunk's rows, and a full buffer expires in steps of 1 %
MIN_CHUNK_ROWS = 64  # ours: a small buffer is not worth a hundred files
ROW_ALIGNMENT = 16  # bytes of one memory transaction of a GPU
LINKS: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
    "back": ((), torch.int32),
    "ahead": ((), torch.int32),
    "end": ((), torch.bool),
}

Layout = Mapping[str, tuple[tuple[int, ...], torch.dtype]]


def row_layout(spaces: Spaces, stack: int) -> Layout:
    """Shape and type of every field of one row; `stack` is the number of frames in an observation, 0 if not stacked."""
    frame = spaces.obs.shape[1:] if stack else spaces.obs.shape
    return {
        "frame": (frame, torch.from_numpy(np.zeros(0, spaces.obs.dtype)).dtype),
        "action": (spaces.action.shape, torch.from_numpy(np.zeros(0, spaces.action.dtype)).dtype),
        "reward": ((), torch.float32),
        "terminated": ((), torch.bool),
        "truncated": ((), torch.bool),
        "valid": ((), torch.bool),
        "skill": ((spaces.skill,), torch.float32),
        **LINKS,
    }


def row_bytes(layout: Layout) -> int:
    """Bytes of one row."""
    used = max(last for _, last in field_places(layout).values())
    return -(-used // ROW_ALIGNMENT) * ROW_ALIGNMENT


def field_places(layout: Layout) -> dict[str, tuple[int, int]]:
    """First and last byte of each field in a row. Wider types come first, which aligns all."""
    places, at = {}, 0
    for name, (shape, dtype) in sorted(layout.items(), key=lambda item: -item[1][1].itemsize):
        places[name] = (at, at + math.prod(shape) * dtype.itemsize)
        at = places[name][1]
    return places


def ring_shape(capacity: int) -> tuple[int, int]:
    """(chunks, rows in each) of a ring that always holds at least `capacity` rows."""
    chunk = max(-(-capacity // CHUNKS), min(capacity, MIN_CHUNK_ROWS))
    return -(-capacity // chunk) + 1, chunk


class RowReader:
    """Readable rows: `packed` (size, bytes) holds all fields of a row next to each other.

    So a device fetches a whole row at once. `fields` are views of it, (size, *field) each.
    """

    def __init__(self, packed: Tensor, layout: Layout) -> None:
        self.packed, self.layout, self.size = packed, layout, len(packed)
        self.fields = self.unpack(packed)

    def unpack(self, rows: Tensor) -> dict[str, Tensor]:
        """The fields (..., *field) of packed rows (..., bytes), as views."""
        lead, fields = rows.shape[:-1], {}
        for name, (first, last) in field_places(self.layout).items():
            shape, dtype = self.layout[name]
            if first == last:  # no bytes to view
                fields[name] = torch.empty(*lead, *shape, dtype=dtype, device=rows.device)
            else:
                fields[name] = rows[..., first:last].view(dtype).unflatten(-1, shape or (1,))
                fields[name] = fields[name] if shape else fields[name].squeeze(-1)
        return fields

    def get_all(self, rows: Tensor) -> dict[str, Tensor]:
        """All fields of rows of any shape (...), fetched at once: (..., *field) each."""
        return self.unpack(self.packed[self.places(rows)])

    def places(self, rows: Tensor) -> Tensor:
        """The places of rows in the ring."""
        return rows % self.size

    def get(self, name: str, rows: Tensor) -> Tensor:
        """One field of rows of any shape (...): (..., *field)."""
        return self.fields[name][self.places(rows)]

    def after(self, rows: Tensor) -> Tensor:
        """The rows of the successor states."""
        return rows + self.get("ahead", rows)

    def observations(self, rows: Tensor, stack: int) -> Tensor:
        """The observations in these rows, (..., *obs): their frame, or a stack of frames, oldest first."""
        if not stack:
            return self.get("frame", rows)
        chain = [rows]
        for _ in range(stack - 1):
            chain.append(chain[-1] - self.get("back", chain[-1]))
        return self.get("frame", torch.stack(chain[::-1], -1))


class RowRing(RowReader):
    """Preallocated rows on one device."""

    def __init__(self, layout: Layout, capacity: int, device: torch.device) -> None:
        self.chunks, self.chunk = ring_shape(capacity)
        self.device = device
        # Host memory is committed only when written, so the ring grows into its memory.
        packed = torch.zeros(self.chunks * self.chunk, row_bytes(layout), dtype=torch.uint8, device=device)
        super().__init__(packed, layout)
        self.head = 0
        """Rows ever written."""

    def rebind_storage(self) -> None:
        """Take new views after `packed` was replaced."""
        self.fields = self.unpack(self.packed)

    @property
    def oldest(self) -> int:
        """The first row that is still stored."""
        return self.oldest_at(self.head)

    def oldest_at(self, head: int) -> int:
        """The first row that is stored once `head` rows have been written."""
        newest_chunk = max(0, head - 1) // self.chunk
        return max(0, newest_chunk - self.chunks + 1) * self.chunk

    def append(self, frames: Array, back: Array, end: Array) -> Array:
        """Append rows with these frames (M, *frame), links `back` (M,) and flags `end` (M,); their numbers (M,)."""
        count = len(frames)
        numbers = np.arange(self.head, self.head + count)
        places = self.places(torch.from_numpy(numbers).to(self.device))
        for name in self.fields.keys() - {"frame", "back", "end"}:
            # Clear the fields of overwritten rows: rows that are never completed must not depend on them (digests).
            self.fields[name].index_fill_(0, places, 0)
        self.write(numbers, {"frame": frames, "back": back.astype(np.int32), "end": end})
        self.head += count
        return numbers

    def write(self, numbers: Array, values: Mapping[str, Array | Tensor]) -> None:
        """Write some fields of some rows, (M, ...) each."""
        places = self.places(torch.from_numpy(numbers).to(self.device))
        for name, rows in values.items():
            field = self.fields[name]
            field.index_copy_(0, places, _as_tensor(rows).to(field.device, field.dtype))

    def slice(self, first: int, last: int) -> dict[str, Tensor]:
        """All fields of rows `first` to `last`, which must lie in one chunk: views into the ring."""
        start = first % self.size
        return {name: field[start : start + last - first] for name, field in self.fields.items()}


def _as_tensor(values: Array | Tensor) -> Tensor:
    if isinstance(values, Tensor):
        return values
    # torch.from_numpy warns about read-only arrays.
    return torch.from_numpy(values if values.flags.writeable else values.copy())


WORD_BYTES = 4


def fits_words(layout: Layout) -> bool:
    """Whether all fields are 32-bit numbers or scalar booleans, as `WordRowReader` needs."""
    return all(
        dtype.itemsize == WORD_BYTES or (dtype == torch.bool and shape == ()) for shape, dtype in layout.values()
    )


class WordRowReader(RowReader):
    """Reads rows as 32-bit words, from which fields are extracted by arithmetic; for layouts that `fits_words`.

    torch.compile can fuse this. Of views of bytes as booleans it cannot (2.11), and a view of one field it copies whole
    at every call unless it starts at a multiple of 16 bytes.
    """

    def __init__(self, packed: Tensor, layout: Layout) -> None:
        super().__init__(packed, layout)
        self._words = packed.view(torch.int32)  # (size, words)
        self._where = field_places(layout)

    def get_all(self, rows: Tensor) -> dict[str, Tensor]:
        words = self._words[self.places(rows)]
        return {name: self._field(name, words) for name in self.layout}

    def get(self, name: str, rows: Tensor) -> Tensor:
        return self._field(name, self._words[self.places(rows)])

    def _field(self, name: str, words: Tensor) -> Tensor:
        shape, dtype = self.layout[name]
        first, last = self._where[name]
        if first == last:
            return torch.empty(*words.shape[:-1], *shape, dtype=dtype, device=words.device)
        at, within = divmod(first, WORD_BYTES)
        if dtype == torch.bool:  # the lowest bit of its byte; words are little-endian
            flag: Tensor = (words[..., at] >> (8 * within)) & 1 != 0
            return flag
        if shape == ():
            return words[..., at].view(dtype)
        numbers: Tensor = words[..., at : last // WORD_BYTES].view(dtype).unflatten(-1, shape)
        return numbers
