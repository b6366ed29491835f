"""The last k pictures as one observation, without moving them.

Pictures lie one after the other in a long strip and an observation is a window of k on it. When the strip is full the
last k − 1 move to a new one, so an observation that was returned never changes afterwards.
"""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from intrigue.envs.atari.protocols import SIDE

Bytes = NDArray[np.uint8]

# Pictures: small enough that memory is reused, and the move of three of them is spread over a dozen steps.
STRIP = 16
PICTURE_BYTES = SIDE * SIDE


@final
class FrameStack:
    """A window of the `size` newest pictures."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._begin(np.zeros((size, SIDE, SIDE), np.uint8))

    @property
    def window(self) -> Bytes:
        """The pictures, oldest first, (size, 84, 84)."""
        return self._strip[self._end - self._size : self._end]

    def next_slot(self) -> Bytes:
        """The slot of the next picture, which is in the window from now on; to be written at once."""
        if self._end == STRIP:
            self._begin(self._strip[self._end - self._size + 1 :])
        self._end += 1
        slot: Bytes = self._strip[self._end - 1]
        return slot

    def next_address(self) -> int:
        """`next_slot` for compiled code: where its 84 · 84 bytes begin."""
        if self._end == STRIP:
            self._begin(self._strip[self._end - self._size + 1 :])
        self._end += 1
        return self._address + (self._end - 1) * PICTURE_BYTES

    def fill(self, picture: Bytes) -> None:
        """Only this picture, as at the start of an episode."""
        self.set(np.broadcast_to(picture, (self._size, SIDE, SIDE)))

    def set(self, pictures: Bytes) -> None:
        """These pictures, oldest first."""
        self._begin(pictures)

    def _begin(self, pictures: Bytes) -> None:
        """A new strip that begins with these."""
        self._strip: Bytes = np.empty((STRIP, SIDE, SIDE), np.uint8)
        self._strip[: len(pictures)] = pictures
        self._end = len(pictures)
        self._address: int = self._strip.ctypes.data
