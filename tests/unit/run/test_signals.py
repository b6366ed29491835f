"""Stop signals: noted, given the right exit code, and everything put back afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from intrigue.errors import Interrupted
from intrigue.run.signals import StopRequest


@pytest.fixture(autouse=True)
def _hangups_are_heard() -> Iterator[None]:
    """Also where the suite runs under nohup, which processes started here would inherit."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGUSR1, 143), (signal.SIGHUP, 143)],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_each_signal_is_noted_and_has_its_exit_code(number: signal.Signals, code: int) -> None:
    before = signal.getsignal(number)
    with StopRequest() as stop:
        assert not stop
        stop.raise_if_set("nothing yet")
        os.kill(os.getpid(), number)
        assert stop
        with pytest.raises(Interrupted, match="saved at step 7") as caught:
            stop.raise_if_set("saved at step 7")
        assert caught.value.exit_code == code
    assert signal.getsignal(number) is before


def test_the_first_signal_counts_and_a_second_sigterm_changes_nothing() -> None:
    with StopRequest() as stop:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGUSR1):
            os.kill(os.getpid(), number)
        assert stop.signal == signal.SIGTERM


def run_code(body: str, launcher: tuple[str, ...] = ()) -> int:
    code = f"import os, signal, time\nfrom intrigue.run.signals import StopRequest\nme = os.getpid()\n{body}"
    return subprocess.run([*launcher, sys.executable, "-c", code], capture_output=True, timeout=60).returncode


@pytest.mark.parametrize("first", ["SIGINT", "SIGTERM"])
def test_a_second_sigint_leaves_at_once(first: str) -> None:
    body = f"with StopRequest():\n os.kill(me, signal.{first})\n os.kill(me, signal.SIGINT)\n time.sleep(30)"
    assert run_code(body) == 130


def test_nohup_is_respected() -> None:
    body = "with StopRequest() as stop:\n os.kill(me, signal.SIGHUP)\n time.sleep(0.1)\n os._exit(5 if stop else 6)"
    ignore = (
        "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execv(sys.executable, sys.argv[1:])"
    )
    assert run_code(body, (sys.executable, "-c", ignore)) == 6
    assert run_code(body) == 5


def test_a_forked_child_can_still_be_terminated() -> None:
    body = (
        "with StopRequest() as stop:\n"
        " ready, tell = os.pipe()\n"
        " child = os.fork()\n"
        " if not child:\n  os.write(tell, b'x'); time.sleep(30); os._exit(1)\n"
        " os.read(ready, 1)\n"  # a signal during the fork itself is lost by the interpreter
        " os.kill(child, signal.SIGTERM)\n"
        " status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
        " os._exit(7 if status == -15 and not stop else 8)"
    )
    assert run_code(body) == 7


def test_outside_the_main_thread_it_listens_to_nothing() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    seen = []

    def work() -> None:
        with StopRequest() as stop:
            seen.append(bool(stop))
            seen.append({number: signal.getsignal(number) for number in before} == before)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False, True]
