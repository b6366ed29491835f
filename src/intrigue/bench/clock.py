"""How speed is measured here: warm first, then the median of several timed calls, the device idle at both ends."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch


def seconds(work: Callable[[], object], device: torch.device, repeats: int, *, warm: int = 1) -> float:
    """Median wall seconds of one call; on a GPU the queue is drained before and after each."""
    for _ in range(warm):
        work()
    taken = []
    for _ in range(repeats):
        settle(device)
        began = time.perf_counter()
        work()
        settle(device)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def settle(device: torch.device) -> None:
    """Wait until the device has nothing left to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
