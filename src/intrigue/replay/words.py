"""Rows of a replay as words of 32 bits, from which numbers and flags are told by arithmetic alone.

So torch.compile can look into a draw: of views of bytes as flags it knows nothing (2.11), and one view of each field it
would copy whole at every call, unless its first number lies on a multiple of 16 bytes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from intrigue.replay.ring import Layout, Rows, field_places

WORD_BYTES = 4


def fits(layout: Layout) -> bool:
    """Whether all fields are numbers of one word, or single flags."""
    return all(
        dtype.itemsize == WORD_BYTES or (dtype == torch.bool and shape == ()) for shape, dtype in layout.values()
    )


class WordRows(Rows):
    """Rows that can be read, of a layout that `fits`."""

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
