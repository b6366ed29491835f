"""The ring of rows: every frame once, linked into episodes.

A row is a state in which an environment was, and what was done there. Rows of all environments lie in one ring in order
of time, and are numbered from 0 for ever; row r lies in place r mod size.

    frame      what is new in the state: its newest picture, or the whole of it
    back       how many rows before this one the same episode's previous state lies; 0 in an episode's first
    ahead      how many rows after it the state that followed lies
    end        the state an episode ended in, from which nothing was done
    action, reward, terminated, truncated, valid, skill     of the transition that left the state

A stack of k frames is row, back, back of that, ...: in an episode's first state that is k times the same frame, and no
stack ever reaches into another episode. The successor is one step ahead, also where the episode ends.

Rows are forgotten in chunks of `chunk` rows, all at once when the ring comes round to the first of them, so that what
is remembered is always whole chunks and the one being filled.

Rows of a replay as words of 32 bits, from which numbers and flags are told by arithmetic alone.

So torch.compile can look into a draw: of views of bytes as flags it knows nothing (2.11), and one view of each field it
would copy whole at every call, unless its first number lies on a multiple of 16 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from intrigue.spaces import Array, Spaces

CHUNKS = 128  # ours: a checkpoint rewrites at most one chunk's rows, and a full replay is forgotten in steps of 1 %
LEAST_ROWS = 64  # ours, in a chunk: a small replay is not worth a hundred files
ROW_ALIGNMENT = 16  # bytes: what a GPU moves at once
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
    """At which bytes of a row each field begins and ends. Wider numbers come first: all lie aligned."""
    found, at = {}, 0
    for name, (shape, dtype) in sorted(layout.items(), key=lambda item: -item[1][1].itemsize):
        found[name] = (at, at + math.prod(shape) * dtype.itemsize)
        at = found[name][1]
    return found


def ring_shape(capacity: int) -> tuple[int, int]:
    """(chunks, rows in each) of a ring that always remembers at least `capacity` rows."""
    chunk = max(-(-capacity // CHUNKS), min(capacity, LEAST_ROWS))
    return -(-capacity // chunk) + 1, chunk


class RowReader:
    """Readable rows: `packed` (size, bytes) holds every field of a row side by side.

    So a device fetches a whole row at once; `fields` are views of it, (size, *field) each.
    """

    def __init__(self, packed: Tensor, layout: Layout) -> None:
        self.packed, self.layout, self.size = packed, layout, len(packed)
        self.fields = self.unpacked(packed)

    def unpacked(self, rows: Tensor) -> dict[str, Tensor]:
        """The fields (..., *field) of packed rows (..., bytes), as views."""
        lead, found = rows.shape[:-1], {}
        for name, (first, last) in field_places(self.layout).items():
            shape, dtype = self.layout[name]
            if first == last:  # no numbers, no bytes to look at
                found[name] = torch.empty(*lead, *shape, dtype=dtype, device=rows.device)
            else:
                found[name] = rows[..., first:last].view(dtype).unflatten(-1, shape or (1,))
                found[name] = found[name] if shape else found[name].squeeze(-1)
        return found

    def whole(self, rows: Tensor) -> dict[str, Tensor]:
        """All fields of rows of any shape (...), fetched at once: (..., *field) each."""
        return self.unpacked(self.packed[self.places(rows)])

    def places(self, rows: Tensor) -> Tensor:
        """Where rows lie."""
        return rows % self.size

    def get(self, name: str, rows: Tensor) -> Tensor:
        """One field of rows of any shape (...): (..., *field)."""
        return self.fields[name][self.places(rows)]

    def after(self, rows: Tensor) -> Tensor:
        """The rows of the states that followed."""
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
        # Zeros of the host are not touched before they are written, so a ring grows into its memory.
        packed = torch.zeros(self.chunks * self.chunk, row_bytes(layout), dtype=torch.uint8, device=device)
        super().__init__(packed, layout)
        self.head = 0
        """Rows ever written."""

    def rebind_storage(self) -> None:
        """To be said when `packed` has got other memory."""
        self.fields = self.unpacked(self.packed)

    @property
    def oldest(self) -> int:
        """The first row that is still remembered."""
        return self.oldest_at(self.head)

    def oldest_at(self, head: int) -> int:
        """The first row that is remembered when `head` rows have been written."""
        newest_chunk = max(0, head - 1) // self.chunk
        return max(0, newest_chunk - self.chunks + 1) * self.chunk

    def append(self, frames: Array, back: Array, end: Array) -> Array:
        """The numbers (M,) of new rows with these frames (M, *frame), `back` rows after their predecessors (M,).

        `end` (M,): from which nothing will be done.
        """
        count = len(frames)
        numbers = np.arange(self.head, self.head + count)
        places = self.places(torch.from_numpy(numbers).to(self.device))
        for name in self.fields.keys() - {"frame", "back", "end"}:
            # What was here a lap ago must not show in rows that are never completed: equal pasts, equal bytes.
            self.fields[name].index_fill_(0, places, 0)
        self.write(numbers, {"frame": frames, "back": back.astype(np.int32), "end": end})
        self.head += count
        return numbers

    def write(self, numbers: Array, values: Mapping[str, Array | Tensor]) -> None:
        """Fill some fields of some rows, (M, ...) each."""
        places = self.places(torch.from_numpy(numbers).to(self.device))
        for name, rows in values.items():
            field = self.fields[name]
            field.index_copy_(0, places, _tensor(rows).to(field.device, field.dtype))

    def slice(self, first: int, last: int) -> dict[str, Tensor]:
        """All fields of rows `first` to `last`, which must lie in one chunk: views into the ring."""
        start = first % self.size
        return {name: field[start : start + last - first] for name, field in self.fields.items()}


def _tensor(values: Array | Tensor) -> Tensor:
    if isinstance(values, Tensor):
        return values
    # Torch warns of arrays that nobody may write to, though it will only read them.
    return torch.from_numpy(values if values.flags.writeable else values.copy())


WORD_BYTES = 4


def fits_words(layout: Layout) -> bool:
    """Whether all fields are numbers of one word, or single flags."""
    return all(
        dtype.itemsize == WORD_BYTES or (dtype == torch.bool and shape == ()) for shape, dtype in layout.values()
    )


class WordRowReader(RowReader):
    """Readable rows, of a layout that `fits_words`."""

    def __init__(self, packed: Tensor, layout: Layout) -> None:
        super().__init__(packed, layout)
        self._words = packed.view(torch.int32)  # (size, words)
        self._where = field_places(layout)

    def whole(self, rows: Tensor) -> dict[str, Tensor]:
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
        if dtype == torch.bool:  # the lowest bit of its byte; bytes of a word lie in order of their weight
            flag: Tensor = (words[..., at] >> (8 * within)) & 1 != 0
            return flag
        if shape == ():
            return words[..., at].view(dtype)
        numbers: Tensor = words[..., at : last // WORD_BYTES].view(dtype).unflatten(-1, shape)
        return numbers
