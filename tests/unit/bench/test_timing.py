"""How far a measurement has come, on a terminal and in a log."""

from __future__ import annotations

import io
import sys

import pytest

from intrigue.bench.timing import IN_A_LOG, ON_A_TERMINAL, Progress


class Watch:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def said(monkeypatch: pytest.MonkeyPatch, terminal: bool, waits: list[float], of: int) -> str:
    """What was written while updates took so many seconds each."""
    stream, watch = io.StringIO(), Watch()
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress("update", watch) as told:
        for number, seconds in enumerate(waits, start=1):
            watch.now += seconds
            told(number, of)
    return stream.getvalue()


def test_quick_updates_are_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(monkeypatch, False, [0.0005] * 2500, 2500) == "update 2500 of 2500\n"
    assert said(monkeypatch, True, [0.00001] * 2500, 2500) == "\rupdate 2500 of 2500\n"


def test_a_log_gets_lines_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = said(monkeypatch, False, [IN_A_LOG / 2] * 5, 5).splitlines()
    assert lines == ["update 2 of 5", "update 4 of 5", "update 5 of 5"]
    assert said(monkeypatch, False, [IN_A_LOG] * 2, 2).splitlines() == ["update 1 of 2", "update 2 of 2"]


def test_a_terminal_keeps_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    text = said(monkeypatch, True, [2 * ON_A_TERMINAL] * 3, 3)
    assert text == "\rupdate 1 of 3\rupdate 2 of 3\rupdate 3 of 3\rupdate 3 of 3\n"


def test_what_ended_early_or_late_ends_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(monkeypatch, True, [0.0] * 7, 100) == "\rupdate 7 of 100\n"
    assert said(monkeypatch, True, [0.0] * 4, 3) == "\rupdate 4 of 4\n"
    assert said(monkeypatch, True, [], 3) == ""
