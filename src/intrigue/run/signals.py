"""A request to stop, made by a signal and honored at the next safe point.

    SIGINT → exit 130; SIGTERM, and SIGUSR1 and SIGHUP as batch systems send them → exit 143.

The handler only sets a flag; the run saves and exits at the next safe point. A second SIGINT exits at once: what is on
disk is whole at every instant, so only the steps since the last checkpoint are lost.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

from intrigue.errors import Interrupted

EXIT_SIGNAL = {
    signal.SIGINT: signal.SIGINT,
    signal.SIGTERM: signal.SIGTERM,
    signal.SIGUSR1: signal.SIGTERM,
    signal.SIGHUP: signal.SIGTERM,
}
RESTORE_TERMINAL = b"\x1b[0m\x1b[?25h\n"  # default colors, cursor shown, a line of its own for the prompt


class StopRequest:
    """Catches stop signals inside its context; outside the main thread it catches none."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._former: dict[signal.Signals, Any] = {}
        self._owner = os.getpid()

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is not threading.main_thread():
            return self
        for number in EXIT_SIGNAL:
            former = signal.getsignal(number)
            # `nohup` ignores hang-ups; keep that.
            if number == signal.SIGHUP and former == signal.SIG_IGN:
                continue
            self._former[number] = former
            signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, former in self._former.items():
            # None: the former handler was not installed from Python and cannot be put back through it.
            signal.signal(number, signal.SIG_DFL if former is None else former)
        self._former.clear()

    def __bool__(self) -> bool:
        return self.signal is not None

    def raise_if_set(self, message: str) -> None:
        """Raise Interrupted with the exit code of the signal, if one arrived. Call it after the state was saved."""
        if self.signal is not None:
            raise Interrupted(self.signal, f"{self.signal.name}: {message}")

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._owner:  # a forked child inherited this handler; it has nothing to save
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        if self.signal is not None and number == signal.SIGINT:
            _exit_now()
        if self.signal is None:
            self.signal = EXIT_SIGNAL[signal.Signals(number)]


def _exit_now() -> None:
    try:
        if sys.stderr is not None and os.isatty(2):
            os.write(2, RESTORE_TERMINAL)
    finally:
        os._exit(128 + signal.SIGINT)
