"""One worker process: steps its part of the environments when the pool asks.

Started as `python -m intrigue.envs.pool.worker_main CONTROL MEMORY LIFELINE SLOT WORKERS WATCHED`, the first three
inherited descriptors. It exits when the pool is gone: the control socket closes, the lifeline pipe closes (noticed by a
thread, also in the middle of a step), and on Linux the kernel kills it with its parent, even when it is stopped.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import sys
import threading
import time
import warnings
from pathlib import Path

from intrigue.envs.pool import messages
from intrigue.envs.pool.local import LocalEnvs
from intrigue.envs.pool.shared_memory import map_arrays, map_header
from intrigue.envs.registry import ENVS
from intrigue.errors import ConfigError, IntrigueError
from intrigue.state import State

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    """Serve the pool that started this process until it is gone."""
    control_fd, memory_fd, lifeline_fd, slot, workers, watched = (int(text) for text in sys.argv[1:])
    # A signal to the whole job is for the parent to handle: it may still want to save the environments' state.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if watched and sys.platform == "linux":
        _die_with_parent()
    threading.Thread(target=_watch, args=(lifeline_fd,), daemon=True).start()
    # Warnings of third-party environments go to stderr, which the pool keeps, and never become errors.
    warnings.simplefilter("default")
    control = socket.socket(fileno=control_fd)
    now = map_header(memory_fd, workers)[2 * slot : 2 * slot + 2]
    try:
        Server(control, memory_fd, workers, now).run()
    except (BrokenPipeError, ConnectionResetError):
        os._exit(0)


class Server:
    """Answers the pool's messages, one at a time."""

    def __init__(self, control: socket.socket, memory_fd: int, workers: int, now: memoryview) -> None:
        self._control = control
        self._memory_fd = memory_fd
        self._workers = workers
        self._now = now
        self._envs: LocalEnvs
        self._num_envs = 0
        self._busy_wait = False

    def run(self) -> None:
        """Serve until the pool closes the connection."""
        spin_wait = messages.SpinWait(self._control)
        while (message := messages.receive(self._control)) is not None:
            self._control.sendall(self._answer_or_error(*message))
            # A step is mostly followed by another; waiting for anything else is not worth a core.
            if self._busy_wait and message[0] in messages.GROUP_OF:
                spin_wait.wait_until(time.monotonic() + messages.BUSY_WAIT_SECONDS)

    def _answer_or_error(self, kind: bytes, tree: State) -> bytes:
        try:
            return self._answer(kind, tree)
        except IntrigueError as error:
            name = "config" if isinstance(error, ConfigError) else "fault"
            return messages.pack(messages.ERROR, {"kind": name, "message": str(error)})

    def _answer(self, kind: bytes, tree: State) -> bytes:
        if kind in messages.GROUP_OF:
            self._envs.receive(messages.GROUP_OF[kind])
            return kind
        match kind:
            case messages.BEGIN:
                return self._begin(tree)
            case messages.MAP:
                self._envs.attach(map_arrays(self._memory_fd, self._workers, self._envs.spec, self._num_envs))
            case messages.RESET:
                self._envs.reset(tree["purpose"], tree["steps"])
            case messages.SNAPSHOT:
                return messages.pack(messages.VALUE, {"states": self._envs.snapshot()})
            case messages.RESTORE:
                self._envs.restore(tree["states"], tree["steps"])
            case _:
                self._envs.close()
        return messages.OK

    def _begin(self, tree: State) -> bytes:
        sys.path[:] = tree["path"]
        if tree["core"] is not None and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {tree["core"]})
        for plugin in tree["plugins"]:
            ENVS.add_file(Path(plugin))
        self._num_envs = tree["num_envs"]
        self._busy_wait = tree["busy_wait"]
        ranges = [range(*each) for each in tree["ranges"]]
        self._envs = LocalEnvs(tree["env_id"], tree["options"], tree["seed"], ranges, self._now)
        return messages.pack(messages.VALUE, dataclasses.asdict(self._envs.spec))


def _watch(lifeline_fd: int) -> None:
    # Nothing is ever written: the read returns when the pool's end is closed, by itself or by its death.
    os.read(lifeline_fd, 1)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _die_with_parent() -> None:
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
