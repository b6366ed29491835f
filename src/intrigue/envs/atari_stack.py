"""The last k pictures as one observation, without moving them.

Pictures lie one after the other in a long strip and an observation is a window of k on it. When the strip is full the
last k − 1 move to a new one, so an observation handed out never changes afterwards.
"""

from __future__ import annotations

from typing import final

import numpy as np

from intrigue.envs.atari_protocols import SIDE
from intrigue.envs.atari_screen import Bytes

STRIP = (
    16  # Pictures: small enough that memory is used again, and the move of three of them is spread over a dozen steps.
)


@final
class Stack:
    """A window of the `size` newest pictures."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._strip = np.zeros((STRIP, SIDE, SIDE), np.uint8)
        self._end = size

    @property
    def window(self) -> Bytes:
        """The pictures, oldest first, (size, 84, 84)."""
        return self._strip[self._end - self._size : self._end]

    def next_slot(self) -> Bytes:
        """The place of the next picture, which belongs to the window from now on; to be written at once."""
        if self._end == STRIP:
            kept = self._strip[self._end - self._size + 1 :]
            self._strip = np.empty_like(self._strip)
            self._strip[: self._size - 1] = kept
            self._end = self._size - 1
        self._end += 1
        slot: Bytes = self._strip[self._end - 1]
        return slot

    def fill(self, picture: Bytes) -> None:
        """Only this picture, as at the start of an episode."""
        self.put(np.broadcast_to(picture, (self._size, SIDE, SIDE)))

    def put(self, pictures: Bytes) -> None:
        """These pictures, oldest first."""
        self._strip = np.empty_like(self._strip)
        self._strip[: self._size] = pictures
        self._end = self._size
