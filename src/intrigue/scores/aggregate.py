"""One number for many games, with its interval: the aggregates of Agarwal et al. 2021 (arXiv:2108.13264) by rliable.

    scores      (seeds, games), one normalised score each
    mean        over games of the mean over seeds
    median      over games of the mean over seeds
    iqm         mean of the middle half of all seeds × games values
    intervals   percentile bootstrap: over seeds, redrawn within each game (stratified), or over seeds and games, which
                says how much the number owes to the choice of games

rliable takes a `random_state` and ignores it: it draws from NumPy's global generator. That generator is seeded around
each call here and put back after, so the same scores give the same interval and nobody else's draws change.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from intrigue.errors import ConfigError

Scores: TypeAlias = npt.NDArray[np.float64]
Statistic: TypeAlias = Callable[[Scores], float]
Interval: TypeAlias = tuple[float, float]

SEED = 0  # of every interval
RESAMPLES = 2_000  # as `intrigue.scores.stats`
CONFIDENCE = 0.95
INSTALL = "rliable is not installed; add it with `pip install 'intrigue[report]'`."


def mean(scores: Scores) -> float:
    """Mean over games."""
    return float(_rliable("metrics").aggregate_mean(_checked(scores)))


def median(scores: Scores) -> float:
    """Median over games of the mean over seeds."""
    return float(_rliable("metrics").aggregate_median(_checked(scores)))


def iqm(scores: Scores) -> float:
    """Interquartile mean over seeds and games."""
    return float(_rliable("metrics").aggregate_iqm(_checked(scores)))


AGGREGATES: Mapping[str, Statistic] = {"mean": mean, "median": median, "IQM": iqm}


def aggregates(scores: Sequence[float]) -> dict[str, float]:
    """All aggregates of one score per game."""
    matrix = np.asarray(scores, dtype=np.float64)[None]
    return {name: statistic(matrix) for name, statistic in AGGREGATES.items()}


def seeds_interval(scores: Scores, statistic: Statistic = mean) -> Interval | None:
    """How far the statistic moves with other seeds; None for one seed."""
    return None if len(_checked(scores)) < 2 else _interval([scores], statistic)


def games_interval(scores: Scores, statistic: Statistic = mean) -> Interval | None:
    """How far the statistic moves with other games (and seeds); None for one game."""
    return None if _checked(scores).shape[1] < 2 else _interval([scores], statistic, task_bootstrap=True)


def difference_interval(ours: Scores, theirs: Scores, statistic: Statistic = mean, times: float = 1) -> Interval | None:
    """Interval over seeds of statistic(ours) − times · statistic(theirs), each redrawn by itself; None for one seed."""
    if _checked(ours).shape[1] != _checked(theirs).shape[1]:
        raise ConfigError(
            f"scores on {ours.shape[1]} and {theirs.shape[1]} games cannot be compared. Accepted: the same games in "
            "the same order. Keep only games that both have."
        )
    return joint_interval([ours, theirs], lambda left, right: statistic(left) - times * statistic(right))


def joint_interval(parts: Sequence[Scores], statistic: Callable[..., float]) -> Interval | None:
    """Interval over seeds of a statistic of several methods, each redrawn by itself; None for one seed."""
    return None if min(len(_checked(part)) for part in parts) < 2 else _interval(parts, statistic)


def _interval(parts: Sequence[Scores], statistic: Callable[..., float], task_bootstrap: bool = False) -> Interval:
    library = _rliable("library")
    with _global_seed(SEED):
        _, found = library.get_interval_estimates(
            # rliable redraws a list part by part, and a lone matrix as one.
            {"": list(parts) if len(parts) > 1 else parts[0]},
            lambda *redrawn: np.array([statistic(*redrawn)]),
            task_bootstrap=task_bootstrap,
            reps=RESAMPLES,
            confidence_interval_size=CONFIDENCE,
        )
    low, high = found[""][:, 0]
    return float(low), float(high)


@contextlib.contextmanager
def _global_seed(seed: int) -> Iterator[None]:
    before = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(before)


def _rliable(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(f"rliable.{module}")
    except ImportError as error:
        raise ConfigError(INSTALL) from error


def _checked(scores: Scores) -> Scores:
    if scores.ndim != 2 or scores.size == 0 or not np.isfinite(scores).all():
        raise ConfigError(
            f"scores of shape {scores.shape} cannot be aggregated. Accepted: finite numbers, (seeds, games), at least "
            "one of each. A run without a finished episode has no score: leave its game out and say so."
        )
    return scores
