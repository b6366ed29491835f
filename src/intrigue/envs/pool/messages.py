"""What a pool and its workers say to each other over a socket pair.

A message is one byte; every kind but steps, OK and CLOSE is followed by eight bytes of length (little-endian) and a
state tree (`intrigue.state.to_bytes`). Nothing is pickled.

    pool -> worker: BEGIN {…} · MAP · RESET {purpose, steps} · step of a group · SNAPSHOT · RESTORE {…} · CLOSE
    worker -> pool: OK · the step's own byte · VALUE {…} · ERROR {kind, message}

Orders may follow each other before answers come, and are answered in their order.

A process that sleeps until a message comes is woken late: by 0.1 to 0.3 ms on a machine of sixteen cores, which is more
than a step of many simulators takes. Where every process has a core of its own (`config.can_be_attentive`), both sides
of a step look out for each other for a moment before they go to sleep.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence
from typing import final

from intrigue.state import State, from_bytes, to_bytes

BEGIN, MAP, RESET, SNAPSHOT, RESTORE, CLOSE = b"b", b"m", b"r", b"n", b"l", b"c"
OK, VALUE, ERROR = b"k", b"v", b"e"
STEPS = [bytes([128 + group]) for group in range(64)]  # One step of this group; `PoolConfig.groups` goes up to 64.
GROUP_OF = {step: group for group, step in enumerate(STEPS)}
BARE = frozenset([*STEPS, OK, CLOSE])
STEPPED = {step: ((step, None),) for step in STEPS}  # By far the most frequent answer, as a list of messages.
LENGTH_BYTES = 8
CHUNK_BYTES = 1 << 16  # Read at most this much at once; Python sets the room aside even for one byte,
SHORT_BYTES = 1 << 8  # so less is asked for where a message begins, which for a step is all of it.
# How long to look out: choosing an action and launching an update takes a learner up to about 1 ms, and so does a step
# of a simulator; a silence of twice that is no part of stepping, and the core is better left to others.
ATTENTION_SECONDS = 0.002
GLANCES = 16  # after a look-out in vain: so an answer that always takes longer costs 2 ms in 17 steps


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
class Lookout:
    """Sees what comes over a socket without going to sleep for it, at the price of the core it runs on."""

    def __init__(self, control: socket.socket) -> None:
        poller = select.poll()
        poller.register(control, select.POLLIN)
        self._poll = poller.poll
        self._skipped = 0

    def until(self, deadline: float) -> bool:
        """Whether something can be read, or the other side is gone, by this time of `time.monotonic`.

        After a look-out in vain the next few are only glances: what takes so long is not worth a core, and where others
        need that core it is what makes them slow.
        """
        # Asked rather than read in vain: an exception at every look would make looks four times as long.
        poll, clock = self._poll, time.monotonic
        if self._skipped:
            self._skipped -= 1
            return bool(poll(0))
        while not poll(0):
            if clock() >= deadline:
                self._skipped = GLANCES
                return False
        return True


@final
class Inbox:
    """Puts messages together from the parts that arrive, without ever waiting."""

    def __init__(self) -> None:
        self._received = bytearray()
        self.chunk_bytes = SHORT_BYTES
        """How much to read next."""

    def feed(self, part: bytes) -> Sequence[tuple[bytes, State]]:
        """The messages that this part completes, in order."""
        if part in STEPPED and not self._received:
            return STEPPED[part]
        self._received += part
        messages = []
        while (message := self._next()) is not None:
            messages.append(message)
        self.chunk_bytes = CHUNK_BYTES if self._received else SHORT_BYTES
        return messages

    def _next(self) -> tuple[bytes, State] | None:
        received, body = self._received, 1 + LENGTH_BYTES
        kind = bytes(received[:1])
        if kind in BARE:
            del received[:1]
            return kind, None
        end = body + int.from_bytes(received[1:body], "little")
        if len(received) < body or len(received) < end:
            return None
        tree = from_bytes(bytes(received[body:end]))
        del received[:end]
        return kind, tree
