"""Times of several ways to do one thing, taken in turns, so that what else the machine does falls on all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

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
