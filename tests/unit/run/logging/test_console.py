"""What a person sees: one line that fits, plain lines now and then, nothing hostile, and never the end of a run."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import re
import struct
import termios
from collections.abc import Callable, Iterator
from typing import TextIO

import pytest

from intrigue.run.logging.console import Console, escape_control

METRICS = {"charts/episodic_return": 1.25, "intrinsic/raw_mean": 0.0321, "charts/coverage": 0.425, "losses/value": 3.0}
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


Terminal = Callable[[int], tuple[TextIO, Callable[[], str]]]


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    """Opens a pseudo-terminal of a width: the stream to write to, and what arrived on the screen's side."""
    streams: list[TextIO] = []
    masters: list[int] = []

    def open_terminal(columns: int) -> tuple[TextIO, Callable[[], str]]:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.set_blocking(master, False)
        streams.append(os.fdopen(slave, "w", encoding="utf-8"))
        masters.append(master)

        def seen() -> str:
            arrived = b""
            try:
                while chunk := os.read(master, 65536):
                    arrived += chunk
            except OSError:
                pass
            return arrived.decode()

        return streams[-1], seen

    yield open_terminal
    for stream in streams:
        stream.close()
    for master in masters:
        os.close(master)


def drive(console: Console, clock: Clock, steps: int = 10) -> None:
    for index in range(steps + 1):
        console.update(index * 1000, index * 4000, METRICS)
        clock.now += 1.0
    console.close()


def visible_lines(screen: str) -> list[str]:
    """Every state the line had: what stands between carriage returns, without colors."""
    return [line for line in re.split(r"[\r\n]+", ESCAPE.sub("", screen)) if line]


@pytest.mark.parametrize("columns", [1, 10, 20, 40, 60, 80, 120, 200])
def test_the_live_line_never_wraps(terminal: Terminal, columns: int) -> None:
    stream, seen = terminal(columns)
    clock = Clock()
    drive(Console(20_000, stream=stream, clock=clock), clock)
    screen = seen()
    assert all(len(line) < columns or columns == 1 for line in visible_lines(screen))
    assert screen.count("\n") <= 1


def test_wide_shows_all_and_narrow_the_important(terminal: Terminal) -> None:
    stream, seen = terminal(160)
    clock = Clock()
    drive(Console(20_000, stream=stream, clock=clock), clock)
    last = visible_lines(seen())[-1]
    for part in ("━", " 50%", "10,000/20,000 steps", "40,000 frames", "1,000 steps/s", "0:10 left", "return 1.25"):
        assert part in last
    assert "bonus 0.0321 · coverage 42.5%" in last
    stream, seen = terminal(40)
    drive(Console(20_000, stream=stream, clock=clock), clock)
    last = visible_lines(seen())[-1]
    assert " 50% · 10,000/20,000 steps" in last
    assert "━" not in last


def test_no_color_and_ascii_streams(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream, seen = terminal(160)
    clock = Clock()
    drive(Console(20_000, stream=stream, clock=clock), clock)
    screen = seen()
    assert "##########----------" in screen
    assert not re.search(r"\x1b\[[0-9;]*m", screen)
    ascii_stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = Console(10, stream=ascii_stream)
    console.say("größer")
    console.update(5, 5, {})
    assert ascii_stream.buffer.getvalue() == b"gr??er\n 50% | 5/10 steps\n"  # type: ignore[attr-defined]


def test_a_dumb_terminal_gets_plain_lines(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream, seen = terminal(80)
    clock = Clock()
    drive(Console(20_000, stream=stream, clock=clock), clock)
    assert "\x1b" not in seen()


def test_plain_lines_first_now_and_then_and_last() -> None:
    stream, clock = io.StringIO(), Clock()
    drive(Console(20_000, stream=stream, clock=clock), clock, steps=25)
    lines = stream.getvalue().splitlines()
    assert [line.split("/")[0].split("· ")[-1] for line in lines] == ["0", "10,000", "20,000", "25,000"]
    assert "\x1b" not in stream.getvalue()
    assert "return 1.25 · bonus 0.0321 · coverage 42.5%" in lines[1]


def test_frames_are_shown_only_when_they_differ() -> None:
    stream = io.StringIO()
    Console(10, stream=stream).update(5, 5, {})
    assert "frames" not in stream.getvalue()
    assert "50% · 5/10 steps" in stream.getvalue()


def test_nan_and_infinite_metrics_and_no_time_and_no_total_do_not_break_the_line() -> None:
    stream, clock = io.StringIO(), Clock()
    console = Console(0, stream=stream, clock=clock)
    for _ in range(3):
        console.update(0, 0, {"charts/episodic_return": float("nan"), "charts/coverage": float("inf")})
    console.close()
    assert "return" not in stream.getvalue()
    assert stream.getvalue().count("\n") == 2


def test_quiet_says_nothing_but_warnings() -> None:
    stream, clock = io.StringIO(), Clock()
    console = Console(20_000, quiet=True, stream=stream, clock=clock)
    console.say("hello")
    drive(console, clock)
    assert stream.getvalue() == ""
    console.say("look out", warning=True)
    assert stream.getvalue() == "look out\n"


def test_a_message_does_not_mix_with_the_line(terminal: Terminal) -> None:
    stream, seen = terminal(80)
    clock = Clock()
    console = Console(20_000, stream=stream, clock=clock)
    console.update(1000, 1000, {})
    console.say("saved [bold]x[/bold] :smile:")
    console.close()
    assert "saved [bold]x[/bold] :smile:" in visible_lines(seen())


def test_control_characters_are_spelled_out() -> None:
    stream = io.StringIO()
    Console(1, stream=stream).say("a\x1b[31mred\x07\r\x9b\u202eb\u2028\x7f\tc\nd\ud800")
    text = stream.getvalue()
    assert "a\\x1b[31mred\\x07\\r\\x9b\\u202eb\\u2028\\x7f" in text
    assert "c\nd\\ud800\n" in text
    assert escape_control("größe ✓ 日本") == "größe ✓ 日本"


def test_a_stream_that_goes_away_does_not_stop_a_run() -> None:
    reader, writer = os.pipe()
    stream = os.fdopen(writer, "w", buffering=1)
    os.close(reader)
    clock = Clock()
    console = Console(20_000, stream=stream, clock=clock)
    console.say("x")
    drive(console, clock)
    with contextlib.suppress(BrokenPipeError):
        stream.close()
    closed = io.StringIO()
    console = Console(20_000, stream=closed, clock=clock)
    closed.close()
    drive(console, clock)


def test_no_stderr_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    clock = Clock()
    console = Console(20_000, clock=clock)
    console.say("x", warning=True)
    drive(console, clock)
