"""Statistics of per-seed values: centers, spreads, bootstrap intervals, comparisons. Pure functions of NumPy arrays.

    iqm          mean of what is left after cutting ⌊n/4⌋ values from each end (Agarwal et al. 2021, arXiv:2108.13264)
    interval     percentile bootstrap over seeds; with a task axis, seeds are redrawn within each task (stratified)
    improvement  P(X > Y) + P(X = Y)/2 over all pairs, the Mann-Whitney statistic over n_x n_y

Values are (seeds,) or (seeds, tasks). One seed has no spread: whatever needs two returns None there, never a zero that
would look like certainty. Randomness comes only from the generator given: its state decides the interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from intrigue.errors import IntrigueError

Array: TypeAlias = npt.NDArray[np.float64]
Values: TypeAlias = Sequence[float] | Array
Statistic: TypeAlias = Callable[[Array], float]
Interval: TypeAlias = tuple[float, float]

TRIMMED_FRACTION = 0.25  # per end: what "interquartile" says
RESAMPLES = 2_000  # ours: from one generator to another the ends then move by 1 to 2 % of the width (10 normal values)
CONFIDENCE = 0.95


class StatisticsError(IntrigueError, ValueError):
    """The values cannot be summarized: none given, not finite, or of the wrong shape."""


def mean(values: Values) -> float:
    """The arithmetic mean over seeds and tasks."""
    return float(_checked(values).mean())


def median(values: Values) -> float:
    """The middle value over seeds and tasks."""
    return float(np.median(_checked(values)))


def std(values: Values) -> float | None:
    """The sample standard deviation (n − 1) over seeds of one task; None for one value."""
    array = _checked(values)
    if array.ndim != 1:
        raise StatisticsError(
            f"values of shape {array.shape} mix the spread of seeds with that of tasks. Accepted: (seeds,). "
            "Pass one task at a time."
        )
    return float(array.std(ddof=1)) if array.size > 1 else None


def standard_error(values: Values) -> float | None:
    """The standard error of the mean, std/√n; None for one value."""
    spread = std(values)
    return None if spread is None else spread / float(np.sqrt(np.size(values)))


def iqm(values: Values) -> float:
    """The interquartile mean: a quarter of the values, rounded down, is cut from each end; all kept below four."""
    ordered = np.sort(_checked(values), axis=None)
    cut = int(TRIMMED_FRACTION * ordered.size)
    return float(ordered[cut : ordered.size - cut].mean())


def bootstrap_interval(
    values: Values,
    rng: np.random.Generator,
    statistic: Statistic = mean,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
) -> Interval | None:
    """The percentile interval of `statistic` over seeds redrawn with replacement; None for one seed."""
    array = _checked(values)
    if array.shape[0] < 2:
        return None
    drawn = [statistic(_redrawn(array, rng)) for _ in range(resamples)]
    return _percentiles(np.asarray(drawn), confidence)


def difference_interval(
    ours: Values,
    theirs: Values,
    rng: np.random.Generator,
    statistic: Statistic = mean,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
) -> Interval | None:
    """The percentile interval of statistic(ours) − statistic(theirs), each redrawn by itself; None for one seed."""
    left, right = _checked(ours), _checked(theirs)
    if min(left.shape[0], right.shape[0]) < 2:
        return None
    drawn = [statistic(_redrawn(left, rng)) - statistic(_redrawn(right, rng)) for _ in range(resamples)]
    return _percentiles(np.asarray(drawn), confidence)


def probability_of_improvement(ours: Values, theirs: Values) -> float:
    """The share of pairs in which ours is larger, ties counted half; averaged over tasks where there are several."""
    left, right = _checked(ours), _checked(theirs)
    if left.shape[1:] != right.shape[1:]:
        raise StatisticsError(
            f"cannot compare values of {left.shape[1:]} and {right.shape[1:]} tasks. Accepted: the same tasks on both "
            "sides, in the same order. Keep only tasks that both have."
        )
    gap = left[:, None] - right[None, :]  # (seeds, seeds[, tasks])
    return float(((gap > 0) + 0.5 * (gap == 0)).mean())


def _redrawn(array: Array, rng: np.random.Generator) -> Array:
    """As many seeds as there are, drawn with replacement, within each task by itself."""
    return np.take_along_axis(array, rng.integers(array.shape[0], size=array.shape), axis=0)


def _percentiles(drawn: Array, confidence: float) -> Interval:
    if not 0 < confidence < 1:
        raise StatisticsError(f"confidence is {confidence}. Accepted: between 0 and 1, both excluded. Use 0.95.")
    tail = 50 * (1 - confidence)
    low, high = np.percentile(drawn, [tail, 100 - tail])
    return float(low), float(high)


def _checked(values: Values) -> Array:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim not in (1, 2) or array.size == 0:
        raise StatisticsError(
            f"values have shape {array.shape}. Accepted: (seeds,) or (seeds, tasks), at least one of each. "
            "Pass the results of at least one finished run."
        )
    if not np.isfinite(array).all():
        raise StatisticsError(
            f"{int((~np.isfinite(array)).sum())} of {array.size} values are NaN or infinite. Accepted: finite numbers. "
            "A failed run has no value: leave it out and say so."
        )
    return array
