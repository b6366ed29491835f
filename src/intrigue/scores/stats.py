"""Statistics of per-seed values: centres, spreads, bootstrap intervals, comparisons.

    values       (seeds,), or (seeds, tasks) for several tasks (games)
    mean         over tasks of the mean over seeds
    median       (seeds,): the middle value; (seeds, tasks): over tasks of the mean over seeds
    iqm          mean of what is left of all values after cutting ⌊n/4⌋ from each end
    interval     percentile bootstrap: over seeds, redrawn within each task (stratified), or over seeds and tasks, which
                 says how much the number owes to the choice of tasks
    improvement  P(X > Y) + P(X = Y)/2 over all pairs, the Mann-Whitney statistic over n_x n_y

Aggregates and intervals are those of Agarwal et al. 2021 (arXiv:2108.13264): without a generator, an interval is drawn
as their library rliable draws it from NumPy's legacy generator with seed 0, to the last bit (a test compares them).
One seed has no spread: whatever needs two returns None, never a zero that would look like certainty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from intrigue.errors import ConfigError

Scores: TypeAlias = npt.NDArray[np.float64]
Values: TypeAlias = Sequence[float] | Scores
Statistic: TypeAlias = Callable[[Scores], float]
Interval: TypeAlias = tuple[float, float]

TRIMMED_FRACTION = 0.25  # per end: what "interquartile" says
RESAMPLES = 2_000  # ours: from one generator to another the ends then move by 1 to 2 % of the width (10 normal values)
CONFIDENCE = 0.95
SEED = 0  # of intervals without a generator


class StatisticsError(ConfigError, ValueError):
    """The values cannot be summarised: none given, not finite, or of the wrong shape."""


def mean(values: Values) -> float:
    """The mean over tasks of the mean over seeds."""
    return float(_checked(values).mean(axis=0).mean())


def median(values: Values) -> float:
    """The middle value of one task; of several, the middle of their means over seeds."""
    array = _checked(values)
    return float(np.median(array if array.ndim == 1 else array.mean(axis=0)))


def iqm(values: Values) -> float:
    """The interquartile mean: a quarter of all values, rounded down, is cut from each end; all kept below four."""
    flat = _checked(values).ravel()
    cut = int(TRIMMED_FRACTION * flat.size)
    kept = slice(cut, flat.size - cut)
    return float(np.partition(flat, (kept.start, kept.stop - 1))[kept].mean())


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


AGGREGATES: Mapping[str, Statistic] = {"mean": mean, "median": median, "IQM": iqm}


def compute_aggregates(scores: Sequence[float]) -> dict[str, float]:
    """All aggregates of one score per task."""
    matrix = np.asarray(scores, dtype=np.float64)[None]
    return {name: statistic(matrix) for name, statistic in AGGREGATES.items()}


def bootstrap_interval(
    values: Values,
    rng: np.random.Generator | None = None,
    statistic: Statistic = mean,
    confidence: float = CONFIDENCE,
    resamples: int | None = None,
    *,
    over_tasks: bool = False,
) -> Interval | None:
    """How far the statistic moves with other seeds, or with other seeds and tasks; None for one seed, or one task."""
    array = _checked(values)
    if (array.shape[1] if over_tasks else array.shape[0]) < 2:
        return None
    [drawn] = _resample([array], rng, resamples or RESAMPLES, over_tasks)
    return _percentiles(_apply(statistic, drawn), confidence)


def difference_interval(
    ours: Values,
    theirs: Values,
    rng: np.random.Generator | None = None,
    statistic: Statistic = mean,
    times: float = 1.0,
) -> Interval | None:
    """The interval of statistic(ours) − times · statistic(theirs), each redrawn by itself; None for one seed."""
    left, right = _checked_pair(ours, theirs)
    if min(len(left), len(right)) < 2:
        return None
    drawn = [_apply(statistic, part) for part in _resample([left, right], rng, RESAMPLES)]
    return _percentiles(drawn[0] - times * drawn[1], CONFIDENCE)


def joint_interval(parts: Sequence[Values], statistic: Callable[..., float]) -> Interval | None:
    """The interval of a statistic of several methods, each redrawn by itself; None for one seed."""
    arrays = [_checked(part) for part in parts]
    if min(map(len, arrays)) < 2:
        return None
    drawn = [statistic(*resample) for resample in zip(*_resample(arrays, None, RESAMPLES), strict=True)]
    return _percentiles(np.asarray(drawn), CONFIDENCE)


def probability_of_improvement(ours: Values, theirs: Values) -> float:
    """The share of pairs in which ours is larger, ties counted half; averaged over tasks where there are several."""
    left, right = _checked_pair(ours, theirs)
    gap = left[:, None] - right[None, :]  # (seeds, seeds[, tasks])
    return float(((gap > 0) + 0.5 * (gap == 0)).mean())


def _resample(
    arrays: Sequence[Scores], rng: np.random.Generator | None, resamples: int, over_tasks: bool = False
) -> list[Scores]:
    """Each array redrawn `resamples` times, (resamples, seeds[, tasks]): as many seeds, with replacement."""
    if rng is not None:
        seeds_of = [rng.integers(len(array), size=(resamples, *array.shape)) for array in arrays]
        drawn = [np.take_along_axis(array[None], seeds, 1) for array, seeds in zip(arrays, seeds_of, strict=True)]
        if over_tasks:
            tasks_of = [rng.integers(each.shape[2], size=(resamples, 1, each.shape[2])) for each in drawn]
            drawn = [np.take_along_axis(each, tasks, 2) for each, tasks in zip(drawn, tasks_of, strict=True)]
        return drawn
    legacy = np.random.RandomState(SEED)
    rounds: list[list[Scores]] = [[] for _ in arrays]
    for _ in range(resamples):
        for array, resampled in zip(arrays, rounds, strict=True):
            seeds = legacy.choice(len(array), array.shape)
            if over_tasks:
                resampled.append(array[seeds, legacy.choice(array.shape[1], (1, array.shape[1]))])
            else:
                resampled.append(np.take_along_axis(array, seeds, axis=0))
    return [np.stack(resampled) for resampled in rounds]


def _apply(statistic: Statistic, drawn: Scores) -> Scores:
    """The statistic of each resample, (resamples,); means all at once, since a table asks for hundreds of them."""
    if statistic is mean:
        return np.asarray(drawn.mean(axis=1).reshape(len(drawn), -1).mean(axis=1))
    return np.asarray([statistic(each) for each in drawn])


def _percentiles(drawn: Scores, confidence: float) -> Interval:
    if not 0 < confidence < 1:
        raise StatisticsError(f"confidence is {confidence}. Accepted: between 0 and 1, both excluded. Use 0.95.")
    tail = 50 * (1 - confidence)
    low, high = np.percentile(drawn, [tail, 100 - tail])
    return float(low), float(high)


def _checked_pair(ours: Values, theirs: Values) -> tuple[Scores, Scores]:
    left, right = _checked(ours), _checked(theirs)
    if left.shape[1:] != right.shape[1:]:
        raise StatisticsError(
            f"cannot compare values of {left.shape[1:]} and {right.shape[1:]} tasks. Accepted: the same tasks on both "
            "sides, in the same order. Keep only tasks that both have."
        )
    return left, right


def _checked(values: Values) -> Scores:
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
