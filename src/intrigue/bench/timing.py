"""Times of several ways to do one thing, taken in turns, so that what else the machine does falls on all alike.

How long named phases of some work take, without making a GPU wait for the watch.

On a GPU a phase is bounded by two events on its own timeline, read when everything is over; elsewhere by the host's
clock. Where the device waits for the host, as while environments step, its timeline shows that too, so phases of both
kinds add up to the whole.

How far a measurement has come, said seldom enough not to be measured with it.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import torch

Work = Callable[[], object]
FLUSH_BYTES = 1 << 29  # several times any GPU's cache; its writing also gives the host time to queue what is timed


def medians(works: Mapping[str, Work], device: torch.device, rounds: int) -> dict[str, float]:
    """Median milliseconds of each, over `rounds` rounds in which each runs once; the GPU's cache is emptied before."""
    for work in works.values():
        work()
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, milliseconds in (_cuda_round if device.type == "cuda" else _cpu_round)(works).items():
            taken[name].append(milliseconds)
    return {name: statistics.median(times) for name, times in taken.items()}


def seconds_once(work: Work, device: torch.device) -> float:
    """Wall seconds of one call, the GPU idle at both ends."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def captured(work: Work) -> Work:
    """The replay of a CUDA graph of the work, which must not wait for the device."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = work()

    def replay() -> object:
        graph.replay()
        return kept

    return replay


def _cpu_round(works: Mapping[str, Work]) -> dict[str, float]:
    taken = {}
    for name, work in works.items():
        began = time.perf_counter()
        work()
        taken[name] = 1000 * (time.perf_counter() - began)
    return taken


def _cuda_round(works: Mapping[str, Work]) -> dict[str, float]:
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    spans = {}
    for name, work in works.items():
        flush.zero_()
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        work()
        ended.record()
        spans[name] = began, ended
    torch.cuda.synchronize()
    return {name: began.elapsed_time(ended) for name, (began, ended) in spans.items()}


Mark: TypeAlias = "float | torch.cuda.Event"


class PhaseClock:
    """Spans of time by name, in the order in which they began."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._spans: list[tuple[str, Mark, Mark]] = []
        self._watched: list[tuple[object, str]] = []

    @contextlib.contextmanager
    def span(self, name: str, *, host: bool = False) -> Iterator[None]:
        """What happens within is one span of this name; `host`: by the host's clock in any case."""
        began = time.perf_counter() if host else self._mark()
        yield
        self._spans.append((name, began, time.perf_counter() if host else self._mark()))

    def watch(self, name: str, owner: object, method: str, *, host: bool = False) -> None:
        """From now on every call of this object's method is a span, until `leave`."""
        work = getattr(owner, method)

        def watched(*args: Any, **kwargs: Any) -> Any:
            with self.span(name, host=host):
                return work(*args, **kwargs)

        # The instance's own attribute shadows its class's: whoever calls it runs as it is, and is watched.
        vars(owner)[method] = watched
        self._watched.append((owner, method))

    def leave(self) -> None:
        """Watch nothing any more."""
        for owner, method in self._watched:
            del vars(owner)[method]
        self._watched.clear()

    def forget(self) -> None:
        """Begin anew, when everything under way is done."""
        self._wait()
        self._spans.clear()

    def seconds(self) -> dict[str, list[float]]:
        """The length of every span since the last `forget`, by name; waits for what is under way."""
        self._wait()
        found: dict[str, list[float]] = {}
        for name, began, ended in self._spans:
            found.setdefault(name, []).append(_between(began, ended))
        return found

    def _mark(self) -> Mark:
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _between(began: Mark, ended: Mark) -> float:
    if isinstance(began, float):
        assert isinstance(ended, float)
        return ended - began
    assert not isinstance(ended, float)
    return float(began.elapsed_time(ended)) / 1e3


ON_A_TERMINAL, IN_A_LOG = 0.1, 10.0  # seconds between two words: a line that changes, lines that stay


class Progress:
    """Says "update 400 of 2500" on stderr: over and over on one line of a terminal, now and then in a log.

    A context: how far it came in the end is said when it is left.
    """

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.what, self.clock = what, clock
        self.terminal = sys.stderr.isatty()
        self._told: tuple[int, int] | None = None
        self._said: tuple[int, int] | None = None
        self._said_at = clock()

    def __enter__(self) -> Progress:
        return self

    def __call__(self, number: int, of: int) -> None:
        """`number` are done."""
        self._told = number, of
        if self.clock() - self._said_at >= (ON_A_TERMINAL if self.terminal else IN_A_LOG):
            self._say("" if self.terminal else "\n")

    def __exit__(self, *_: Any) -> None:
        if self._told is not None and (self.terminal or self._said != self._told):
            self._say("\n")

    def _say(self, end: str) -> None:
        assert self._told is not None
        number, of = self._told
        begin = "\r" if self.terminal else ""
        sys.stderr.write(f"{begin}{self.what} {number} of {max(number, of)}{end}")
        sys.stderr.flush()
        self._said, self._said_at = self._told, self.clock()
