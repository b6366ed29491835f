"""A worker process as the pool sees it: start, messages, exit reason, kill.

The process leads a session of its own, so that a signal to the terminal's group does not reach it, and so that whatever
its environments start can be killed with it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import final

from intrigue.envs.pool.messages import CHUNK_BYTES, Inbox, SpinWait
from intrigue.state import State

NOTHING: tuple[tuple[bytes, State], ...] = ()
TAIL_BYTES = 4096  # How much of what a worker printed goes into an error: about fifty lines.
POLL_SECONDS = 0.005  # How often to check whether a process has ended: short compared with its start.
# One thread per worker: the processes are the parallelism, and BLAS threads of several would fight for the cores.
SINGLE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@final
class WorkerHandle:
    """One worker process."""

    def __init__(
        self,
        slot: int,
        workers: int,
        ranges: Sequence[range],
        memory_fd: int,
        lifeline_fd: int,
        variables: Mapping[str, str],
    ) -> None:
        self.slot = slot
        self.ranges = ranges  # The environment indices of each group.
        self._inbox = Inbox()
        self._tail = b""
        self.control, theirs = socket.socketpair()
        # Non-blocking rather than with a time limit: with one, Python makes two system calls for every byte.
        self.control.setblocking(False)
        self._send, self._receive = self.control.send, self.control.recv
        self.output_fd, output = os.pipe()
        os.set_blocking(self.output_fd, False)
        # The kernel counts the thread that started a process as its parent, so only the main thread may be watched.
        watched = threading.current_thread() is threading.main_thread()
        numbers = (theirs.fileno(), memory_fd, lifeline_fd, slot, workers, int(watched))
        try:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "intrigue.envs.pool.worker_main", *map(str, numbers)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=numbers[:3],
                env=worker_environment(variables),
                start_new_session=True,
            )
        except BaseException:
            self.control.close()
            os.close(self.output_fd)
            raise
        finally:
            theirs.close()
            os.close(output)
        self._poller = select.poll()
        self._poller.register(self.control, select.POLLIN)
        self._poller.register(self.output_fd, select.POLLIN)
        self.spin_until = SpinWait(self.control).wait_until

    @property
    def pid(self) -> int:
        """Process id, which is its group's id too."""
        return self._popen.pid

    def send(self, message: bytes, limit_seconds: float) -> None:
        """Send a whole message; OSError when the worker is gone or does not read it in time."""
        # A step's message is one byte and is sent at once: the rest below is for long messages.
        try:
            sent = self._send(message)
        except BlockingIOError:
            sent = 0
        if sent < len(message):
            self._send_rest(memoryview(message)[sent:], limit_seconds)

    def _send_rest(self, rest: memoryview, limit_seconds: float) -> None:
        deadline = time.monotonic() + limit_seconds
        while rest:
            try:
                rest = rest[self.control.send(rest) :]
            except BlockingIOError:
                poller = select.poll()
                poller.register(self.control, select.POLLOUT)
                if not poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
                    raise TimeoutError from None

    def poll(self) -> Sequence[tuple[bytes, State]]:
        """The answers that have arrived completely; EOFError when the worker closed its connection."""
        try:
            part = self._receive(self._inbox.chunk_bytes)
        except BlockingIOError:
            return NOTHING
        except ConnectionResetError:
            part = b""
        if not part:
            raise EOFError
        return self._inbox.feed(part)

    def wait(self, seconds: float) -> bool:
        """Sleep until there may be an answer, reading what the worker prints; False when nothing came in time."""
        events = self._poller.poll(max(0.0, seconds) * 1000)
        for descriptor, _ in events:
            if descriptor == self.output_fd:
                self._read_output()
        return bool(events)

    def _read_output(self) -> None:
        """Keep the end of what the worker printed; unregister the pipe at its end."""
        while True:
            try:
                part = os.read(self.output_fd, CHUNK_BYTES)
            except BlockingIOError:
                return
            if not part:
                with contextlib.suppress(KeyError):
                    self._poller.unregister(self.output_fd)
                return
            self._tail = (self._tail + part)[-TAIL_BYTES:]

    def last_output(self) -> str:
        """The end of what the worker printed, as a paragraph for an error, or nothing."""
        self._read_output()
        text = self._tail.decode(errors="replace").strip()
        return f"\nThe worker's last words:\n{text}" if text else ""

    def has_exited(self) -> bool:
        """Whether the process has ended; it is left unreaped, so that its id stays ours until `kill`."""
        if self._popen.returncode is not None or not hasattr(os, "waitid"):
            return self._popen.poll() is not None
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def exit_reason(self, grace_seconds: float = 1.0) -> str:
        """How the process ended, in words. Its connection is closed already, so it may still be about to exit."""
        deadline = time.monotonic() + grace_seconds
        while not self.has_exited() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        if not self.has_exited():
            return f"its worker process {self.pid} closed its connection"
        self.kill()
        code = self._popen.returncode
        if code >= 0:
            return f"its worker process {self.pid} exited with code {code}"
        name = signal.Signals(-code).name
        hint = " (the system does this when memory runs out)" if name == "SIGKILL" else ""
        return f"its worker process {self.pid} was killed by {name}{hint}"

    def kill(self) -> None:
        """Kill the process and all it started, and reap it."""
        if self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._popen.kill()
            self._popen.wait()

    def release(self) -> None:
        """Kill, and close the connection."""
        self.kill()
        self.control.close()
        os.close(self.output_fd)


def worker_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """This process's variables, with its import path, and with warnings never raised as errors."""
    path = os.pathsep.join(import_path())
    ours = {"PYTHONPATH": path, "PYTHONSAFEPATH": "1", "PYTHONWARNINGS": "default"}
    return {**SINGLE_THREAD, **variables, **os.environ, **ours}


def import_path() -> list[str]:
    """Where this process finds modules, with the working directory spelled out."""
    return [path or os.getcwd() for path in sys.path]
