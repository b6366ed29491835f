"""Progress on stderr: one live line on a terminal, a plain line now and then elsewhere, nothing when quiet.

The live line drops parts rather than wrap, from the least to the most important. It is rewritten with a carriage return
and never hides the cursor, so a killed run leaves the terminal as it was. Text from outside (names, exception texts) is
printed with its control characters escaped. A closed stream never stops a run.
"""

from __future__ import annotations

import collections
import io
import math
import os
import sys
import time
import unicodedata
from collections.abc import Callable, Mapping
from typing import TextIO

from rich.console import Console as RichConsole
from rich.text import Text

LIVE_SECONDS = 0.2  # between redraws; ours, smooth enough for the eye
PLAIN_SECONDS = 10.0  # between lines of a log; ours
RATE_WINDOW_SECONDS = 30.0  # over which the rate is taken, so that a slow start is forgotten
BAR_WIDTH = 20
# What is shown of the metrics: label, the names it may have (first match wins), how it is written.
HEADLINES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("return", ("charts/episodic_return", "episodic_return"), "{:.4g}"),
    ("bonus", ("intrinsic/raw_mean", "intrinsic/mean", "reward/intrinsic_mean", "intrinsic/reward"), "{:.3g}"),
    ("coverage", ("charts/coverage", "env/coverage", "rooms/coverage", "coverage"), "{:.1%}"),
)


def escape_control(text: str) -> str:
    """The text with every character escaped that could move the cursor, change colors or reorder it."""
    return "".join(_escape(character) for character in text.expandtabs(4))


def _escape(character: str) -> str:
    if character == "\n" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return character
    return character.encode("unicode_escape").decode("ascii")


class Console:
    """Shows the progress of a run."""

    def __init__(
        self,
        total_steps: int,
        quiet: bool = False,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        seeds: int = 1,
    ) -> None:
        self._total = total_steps
        self._seeds = seeds  # runs that take each step together; the rate is that of all of them
        self._quiet = quiet
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        probe = RichConsole(file=io.StringIO() if self._stream is None else self._stream)
        self._live = probe.is_terminal and not probe.is_dumb_terminal
        # rich only turns text into escape codes: given the stream itself, it would end the program on a broken pipe.
        self._rich = RichConsole(file=io.StringIO(), force_terminal=self._live, highlight=False)
        self._usable = self._stream is not None
        self._encoding = getattr(self._stream, "encoding", None) or "utf-8"  # none: a stream of text, not of bytes
        self._separator = " · " if self._supports_unicode() else " | "
        self._marks: collections.deque[tuple[float, int]] = collections.deque()
        self._drawn_at = -math.inf
        self._line_shown = False
        self._latest: tuple[int, int, dict[str, float]] | None = None
        self._latest_drawn = False

    def update(self, step: int, frame: int, metrics: Mapping[str, float]) -> None:
        """Show the progress, unless the line was drawn a moment ago."""
        known = self._latest[2] if self._latest else {}
        self._latest = (step, frame, {**known, **{name: value for name, value in metrics.items() if value == value}})
        self._latest_drawn = False
        now = self._clock()
        self._marks.append((now, step))
        while len(self._marks) > 2 and now - self._marks[0][0] > RATE_WINDOW_SECONDS:
            self._marks.popleft()
        if now - self._drawn_at >= (LIVE_SECONDS if self._live else PLAIN_SECONDS):
            self._draw(now)

    def say(self, message: str, *, warning: bool = False) -> None:
        """Print a line that stays; warnings are printed even when quiet."""
        if self._quiet and not warning:
            return
        self._erase()
        text = Text(escape_control(message), style="yellow" if warning else "")
        self._emit(text, end="\n")
        if self._live and self._latest is not None and not self._quiet:
            self._draw(self._clock())

    def close(self) -> None:
        """Show the final progress, and leave the cursor on a line of its own."""
        if self._latest is not None and not self._latest_drawn:
            self._draw(self._clock())
        if self._line_shown:
            self._write("\n")
            self._line_shown = False

    def _draw(self, now: float) -> None:
        if self._quiet or self._latest is None:
            return
        self._drawn_at = now
        self._latest_drawn = True
        parts = self._parts()
        if not self._live:
            self._emit(Text(self._separator.join(text for _, text in sorted(parts))), end="\n")
            return
        self._erase()
        # The last column stays free: some terminals wrap when it is written.
        self._emit(self._fit_line(parts, self._width() - 1), end="")
        self._line_shown = True

    def _parts(self) -> list[tuple[int, str]]:
        """(place in the line, text), the most important first."""
        assert self._latest is not None
        step, frame, metrics = self._latest
        parts = [(0, f"{self._fraction_done(step):4.0%}"), (1, f"{step:,}/{self._total:,} steps{self._seed_count()}")]
        rate = self._rate()
        if rate is not None:
            parts.append((3, f"{_short(rate * self._seeds)} steps/s"))
            if rate > 0 and step < self._total:
                parts.append((4, f"{_duration((self._total - step) / rate)} left"))
        for place, (label, names, form) in enumerate(HEADLINES, start=5):
            value = next((metrics[name] for name in names if name in metrics), None)
            if value is not None:
                parts.append((place, f"{label} {form.format(value)}"))
        if frame != step:
            parts.append((2, f"{frame:,} frames"))
        return parts

    def _fit_line(self, parts: list[tuple[int, str]], width: int) -> Text:
        """As many parts as fit, and the bar if there is still room."""
        chosen: list[tuple[int, str]] = []
        for part in parts:
            if len(self._separator.join(text for _, text in [*chosen, part])) <= width:
                chosen.append(part)
        line = Text(self._separator.join(text for _, text in sorted(chosen)), no_wrap=True)
        if len(line) + BAR_WIDTH + 1 <= width:
            assert self._latest is not None
            filled = round(BAR_WIDTH * self._fraction_done(self._latest[0]))
            bar = Text("━" * filled, style="cyan") + Text("━" * (BAR_WIDTH - filled), style="bright_black")
            if not self._supports_unicode() or self._rich.no_color:
                bar = Text("#" * filled + "-" * (BAR_WIDTH - filled))
            line = bar + Text(" ") + line
        return line

    def _width(self) -> int:
        """Columns of the terminal behind the stream; rich only asks those behind the standard streams."""
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or self._rich.width
        except (OSError, ValueError):
            return self._rich.width

    def _seed_count(self) -> str:
        return f" of {self._seeds} seeds" if self._seeds > 1 else ""

    def _fraction_done(self, step: int) -> float:
        return min(1.0, step / self._total) if self._total > 0 else 1.0

    def _rate(self) -> float | None:
        (start, first), (end, last) = self._marks[0], self._marks[-1]
        return (last - first) / (end - start) if end > start and last > first else None

    def _supports_unicode(self) -> bool:
        return self._encoding.lower().startswith("utf")

    def _erase(self) -> None:
        if self._line_shown:
            self._write("\r\x1b[2K")
            self._line_shown = False

    def _emit(self, text: Text, end: str) -> None:
        with self._rich.capture() as captured:
            self._rich.print(text, end=end, soft_wrap=True)
        self._write(captured.get())

    def _write(self, text: str) -> None:
        """Write and flush; from the first failure on, stay silent."""
        if not self._usable:
            return
        try:
            self._stream.write(text.encode(self._encoding, "replace").decode(self._encoding))
            self._stream.flush()
        except (OSError, ValueError):
            self._usable = False


def _short(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def _duration(seconds: float) -> str:
    if seconds >= 360_000_000:  # ten years and more
        return "very long"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
