"""Work that runs in a stream of its own, beside what the current stream does.

    with Beside(stream) as other:        after all that was begun before
        first()
    meanwhile()
    other.wait()                         what is begun from here on runs after `first`

Captured in a CUDA graph, these are two branches. What the other stream works on must be kept until `wait`.
Without a stream everything runs as it stands.
"""

from __future__ import annotations

import contextlib
from typing import final

import torch


@final
class Beside:
    """A branch of work."""

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        self._stream = stream
        self._left = contextlib.ExitStack()

    def __enter__(self) -> Beside:
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
            self._left.enter_context(torch.cuda.stream(self._stream))
        return self

    def __exit__(self, *about: object) -> None:
        self._left.close()

    def wait(self) -> None:
        """Whatever the current stream begins from here on runs after all of it."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)
