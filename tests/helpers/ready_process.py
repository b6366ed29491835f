"""A process that has torch and intrigue loaded and forks once for every program asked of it.

Starting Python and importing torch takes two to four seconds, a fork of a process that has done so a few milliseconds.
Each program still has a process of its own: its memory, folder, environment, standard streams and exit code. What a
fork cannot show, that the installed command starts from nothing, is left to the tests that start it so.

    done = ready_process.run("intrigue", ["verify", "maze"], cwd=folder)          # a CompletedProcess, text
    ready_process.folder_of_commands()      # for PATH: an `intrigue` for shells, which asks the same process

One such process serves a whole test session; it ends with it, whatever way that is.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import functools
import importlib
import json
import os
import pkgutil
import re
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

PAGE = Path(__file__).with_name("run_page.py")
SECONDS = 600  # no program here takes a twentieth of it on two idle cores; beyond this it hangs
# What most programs import sooner or later; torch's first optimiser imports its compiler, and that half of sympy.
LOADED = ("torch", "torch._dynamo", "gymnasium", "safetensors.torch", "matplotlib.figure", "tyro", "rich.console")
# The command itself; what is written in Triton's language; MuJoCo, which reads variables when it is loaded.
NOT_LOADED = r"__main__|_kernels|\.dmc"
SHELL_COMMAND = f"""#!{sys.executable} -IS
import array, json, os, socket, sys
ready = socket.socket(socket.AF_UNIX)
ready.connect({{path!r}})
asked = {{{{"program": "intrigue", "arguments": sys.argv[1:], "folder": os.getcwd(), "variables": dict(os.environ)}}}}
ready.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
ready.sendall(json.dumps(asked).encode())
ready.shutdown(socket.SHUT_WR)
code = int(ready.makefile().read() or 70)
sys.exit(code if code >= 0 else 128 - code)
"""


def run(
    program: str,
    arguments: Sequence[object] = (),
    *,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run `intrigue` with these arguments, or `page` (the blocks of a documentation page, on stdin), to its end."""
    with contextlib.ExitStack() as stack:
        given, out, error = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        given.write(stdin.encode())
        given.seek(0)
        ready = stack.enter_context(socket.socket(socket.AF_UNIX))
        ready.settimeout(SECONDS)
        ready.connect(_server())
        streams = array.array("i", [each.fileno() for each in (given, out, error)])
        ready.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
        variables = dict(os.environ if env is None else env)
        asked = [str(each) for each in arguments]
        folder = str(cwd or Path.cwd())
        request = {"program": program, "arguments": asked, "folder": folder, "variables": variables}
        ready.sendall(json.dumps(request).encode())
        ready.shutdown(socket.SHUT_WR)
        code = _received(ready)
        assert code, "the ready process has ended"
        texts = []
        for each in (out, error):
            each.seek(0)
            texts.append(each.read().decode())
    return subprocess.CompletedProcess([program, *asked], int(code), *texts)


@functools.cache
def folder_of_commands() -> Path:
    """A folder with an `intrigue` in it that runs in a fork of the ready process."""
    server = Path(_server())
    file = server.with_name("intrigue")
    file.write_text(SHELL_COMMAND.format(path=str(server)))
    file.chmod(0o755)
    return file.parent


@functools.cache
def _server() -> str:
    """The socket at which the ready process listens; it is started on the first call."""
    folder = Path(tempfile.mkdtemp(prefix="ready"))  # short: the path of a socket has at most 107 bytes
    path = str(folder / "socket")
    # One thread of OpenMP: tests run beside each other, and small networks gain nothing from more.
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    ready = subprocess.Popen(
        [sys.executable, __file__, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables, text=True
    )
    assert ready.stdin is not None and ready.stdout is not None
    atexit.register(ready.wait)
    atexit.register(ready.stdin.close)  # called first; with its standard input the process ends
    with ready.stdout:
        assert ready.stdout.readline() == "ready\n"
    return path


def _received(connection: socket.socket) -> str:
    """All that the other side sends."""
    return b"".join(iter(lambda: connection.recv(1 << 16), b"")).decode()


def serve(path: str) -> None:
    """Load what programs import, then fork for each connection until standard input ends."""
    import intrigue

    for name in LOADED:
        importlib.import_module(name)
    for each in pkgutil.walk_packages(intrigue.__path__, "intrigue."):
        if not re.search(NOT_LOADED, each.name):
            importlib.import_module(each.name)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those who answer are waited for by nobody
    if os.fork() == 0:
        _end_with_input(os.getppid(), Path(path))
    print("ready", flush=True)
    while True:
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _answer(connection)
        connection.close()


def _end_with_input(server: int, path: Path) -> None:
    """Wait for the end of the session that started this, and let nothing of the server remain."""
    sys.stdin.buffer.read()
    os.kill(server, signal.SIGTERM)
    for each in path.parent.iterdir():
        each.unlink()
    path.parent.rmdir()
    os._exit(0)


def _answer(connection: socket.socket) -> None:
    """Run one program in a child and say how it ended."""
    streams = array.array("i")
    _, ancillary, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(3 * streams.itemsize))
    for _, _, content in ancillary:
        streams.frombytes(content)
    asked = json.loads(_received(connection))
    child = os.fork()
    if child == 0:
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        _become(asked)
    watched = select.poll()
    watched.register(connection, 0)  # says only that whoever asked is gone: a killed command is a killed program
    watched.register(os.pidfd_open(child), select.POLLIN)
    if any(happened & select.POLLHUP for _, happened in watched.poll()):
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(OSError):
        connection.sendall(str(code).encode())
    os._exit(0)


def _become(asked: dict) -> None:
    """The program itself; never returns."""
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode) for number, mode in ((0, "r"), (1, "w"), (2, "w")))
    os.environ.clear()
    os.environ.update(asked["variables"])
    os.chdir(asked["folder"])
    sys.argv = [asked["program"], *asked["arguments"]]
    code: object = 1
    try:
        if asked["program"] == "page":
            warnings.simplefilter("error")
            runpy.run_path(str(PAGE), run_name="__main__")
        else:
            from intrigue.cli import main

            sys.exit(main(asked["arguments"]))
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


if __name__ == "__main__":
    serve(sys.argv[1])
