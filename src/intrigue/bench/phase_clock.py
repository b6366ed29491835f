"""How long named phases of some work take, without making a GPU wait for the watch.

On a GPU a phase is bounded by two events on its own timeline, read when everything is over; elsewhere by the host's
clock. Where the device waits for the host, as while environments step, its timeline shows that too, so phases of both
kinds add up to the whole.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any, TypeAlias

import torch

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
