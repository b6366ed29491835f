"""Metrics over time: one line per run, and their mean on a shared axis.

The mean exists only where every run has a value, so that it never is the mean of whoever was left. Long lines are
thinned to what a picture can show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from intrigue.report.record import RunRecord

POINTS = 400  # per line; ours: about one per pixel of a chart

Line = tuple[NDArray[np.float64], NDArray[np.float64]]  # steps and values, finite


@dataclass(frozen=True)
class Curve:
    """What one arm did over time."""

    lines: tuple[Line, ...]
    mean: Line


def line_of(run: RunRecord, column: str) -> Line | None:
    """A metric or evaluation of one run where it was measured; None where it never was."""
    table = run.metrics if column in run.metrics else run.evaluations
    if column not in table:
        return None
    steps = np.asarray(table["step"], dtype=np.float64)
    values = np.asarray(table[column], dtype=np.float64)
    measured = np.isfinite(values)
    return (steps[measured], values[measured]) if measured.any() else None


def curve_of(runs: Sequence[RunRecord], column: str) -> Curve | None:
    """The metric of several runs; None unless all of them have it."""
    lines = [line for run in runs if (line := line_of(run, column)) is not None]
    if not lines or len(lines) < len(runs):
        return None
    return Curve(tuple(thinned(line) for line in lines), thinned(mean_line(lines)))


def mean_line(lines: Sequence[Line]) -> Line:
    """The mean at every step some line was measured at, within the span that all of them share."""
    first = max(float(steps[0]) for steps, _ in lines)
    last = min(float(steps[-1]) for steps, _ in lines)
    grid = np.unique(np.concatenate([steps for steps, _ in lines]))
    grid = grid[(grid >= first) & (grid <= last)]
    if not grid.size:
        return grid, grid
    return grid, np.mean([np.interp(grid, steps, values) for steps, values in lines], axis=0)


def thinned(line: Line) -> Line:
    """At most `POINTS` points of the line, evenly chosen, first and last kept."""
    steps, values = line
    if len(steps) <= POINTS:
        return line
    chosen = np.unique(np.linspace(0, len(steps) - 1, POINTS).round().astype(int))
    return steps[chosen], values[chosen]
