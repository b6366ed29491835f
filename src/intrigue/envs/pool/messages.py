"""The protocol between a pool and its workers over a socket pair.

A message is one byte; every kind but steps, OK and CLOSE is followed by eight bytes of length (little-endian) and a
state tree (`intrigue.state.to_bytes`). Nothing is pickled.

    pool -> worker: BEGIN {…} · MAP · RESET {purpose, steps} · step of a group · SNAPSHOT · RESTORE {…} · CLOSE
    worker -> pool: OK · the step's own byte · VALUE {…} · ERROR {kind, message}

Several requests may be sent before the first answer; they are answered in order.

A process that sleeps until a message comes is woken late: by 0.1 to 0.3 ms on a machine of sixteen cores, more than a
step of many simulators takes. Where every process has a core of its own (`config.can_busy_wait`), both sides of a step
busy-wait for a moment before they sleep (`SpinWait`).
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
CHUNK_BYTES = 1 << 16  # Read at most this much at once. Python allocates the whole buffer even for one byte,
SHORT_BYTES = 1 << 8  # so less is requested where a message begins, which for a step is all of it.
# How long to busy-wait: choosing an action and launching an update takes a learner up to about 1 ms, and so does a step
# of a simulator; after twice that the core is better left to others.
BUSY_WAIT_SECONDS = 0.002
SHORT_POLLS = 16  # Single polls after a miss: an answer that always takes longer then costs 2 ms in 17 steps.


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
class SpinWait:
    """Waits for data on a socket without sleeping, which occupies the core it runs on."""

    def __init__(self, control: socket.socket) -> None:
        poller = select.poll()
        poller.register(control, select.POLLIN)
        self._poll = poller.poll
        self._skipped = 0

    def wait_until(self, deadline: float) -> bool:
        """Whether data can be read, or the other side is gone, by this time of `time.monotonic`.

        Backs off after a miss: the next few calls poll once. An answer that takes so long is not worth a core, and
        where others need that core, spinning is what makes them slow.
        """
        # Polled rather than read: an exception at every empty read would make a round four times as long.
        poll, clock = self._poll, time.monotonic
        if self._skipped:
            self._skipped -= 1
            return bool(poll(0))
        while not poll(0):
            if clock() >= deadline:
                self._skipped = SHORT_POLLS
                return False
        return True


@final
class Inbox:
    """Assembles messages from the parts that arrive; never blocks."""

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
