"""What a pool and its workers say to each other over a socket pair.

A message is one byte; every kind but STEP, OK and CLOSE is followed by eight bytes of length (little-endian) and a
state tree (`intrigue.state.to_bytes`). Nothing is pickled.

    pool -> worker: BEGIN {…} · MAP · RESET {purpose, steps} · STEP · SNAPSHOT · RESTORE {states, steps} · CLOSE
    worker -> pool: OK · VALUE {…} · ERROR {kind, message}
"""

from __future__ import annotations

import socket
from typing import final

from intrigue.state import State, from_bytes, to_bytes

BEGIN, MAP, RESET, STEP, SNAPSHOT, RESTORE, CLOSE = b"b", b"m", b"r", b"s", b"n", b"l", b"c"
OK, VALUE, ERROR = b"k", b"v", b"e"
BARE = (STEP, OK, CLOSE)
LENGTH_BYTES = 8
CHUNK_BYTES = 1 << 16  # Read at most this much at once; Python sets the room aside even for one byte.


def pack(kind: bytes, tree: State = None) -> bytes:
    """A message as bytes."""
    if kind in BARE:
        return kind
    blob = to_bytes(tree)
    return kind + len(blob).to_bytes(LENGTH_BYTES, "little") + blob


def receive(control: socket.socket) -> tuple[bytes, State] | None:
    """The next message, waiting for it; None when the other side is gone."""
    kind = control.recv(1)
    if kind in BARE:
        return kind, None
    size = _exactly(control, LENGTH_BYTES) if kind else None
    blob = _exactly(control, int.from_bytes(size, "little")) if size is not None else None
    return None if blob is None else (kind, from_bytes(bytes(blob)))


def _exactly(control: socket.socket, count: int) -> bytearray | None:
    received = bytearray()
    while len(received) < count:
        part = control.recv(min(CHUNK_BYTES, count - len(received)))
        if not part:
            return None
        received += part
    return received


@final
class Inbox:
    """Puts a message together from the parts that arrive, without ever waiting."""

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, part: bytes) -> tuple[bytes, State] | None:
        """The whole message when this part completes it, else None."""
        if part in BARE and not self._received:
            return part, None
        self._received += part
        kind = bytes(self._received[:1])
        body = 1 + LENGTH_BYTES
        if kind in BARE:
            message: tuple[bytes, State] | None = (kind, None)
        elif len(self._received) < body or len(self._received) < body + int.from_bytes(
            self._received[1:body], "little"
        ):
            message = None
        else:
            message = (kind, from_bytes(bytes(self._received[body:])))
        if message is not None:
            self._received.clear()
        return message
