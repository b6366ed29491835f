"""How far a measurement has come, said seldom enough not to be measured with it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

ON_A_TERMINAL, IN_A_LOG = 0.1, 10.0  # seconds between two words: a line that changes, lines that stay


class Progress:
    """Says "update 400 of 2500" on stderr: over and over on one line of a terminal, now and then in a log.

    A context: how far it came in the end is said when it is left.
    """

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.what, self.clock = what, clock
        self.terminal = sys.stderr.isatty()
        self._told: tuple[int, int] | None = None
        self._said: tuple[int, int] | None = None
        self._said_at = clock()

    def __enter__(self) -> Progress:
        return self

    def __call__(self, number: int, of: int) -> None:
        """`number` are done."""
        self._told = number, of
        if self.clock() - self._said_at >= (ON_A_TERMINAL if self.terminal else IN_A_LOG):
            self._say("" if self.terminal else "\n")

    def __exit__(self, *_: Any) -> None:
        if self._told is not None and (self.terminal or self._said != self._told):
            self._say("\n")

    def _say(self, end: str) -> None:
        assert self._told is not None
        number, of = self._told
        begin = "\r" if self.terminal else ""
        sys.stderr.write(f"{begin}{self.what} {number} of {max(number, of)}{end}")
        sys.stderr.flush()
        self._said, self._said_at = self._told, self.clock()
