"""How Atari claims are judged. The rules, stated before any result:

order      "A above B" in a game or an aggregate: 95 % interval over seeds of the difference. PASS wholly on the
           claim's side, FAIL wholly on the other, SHORT when it holds 0 or there is one seed.
value      a number of the paper: PASS when our interval reaches the recomputed value or lies above it. Below it:
           FAIL only after the nominal 1e8 steps, since fewer explain less; SHORT before.
aggregate  a claim about the mean over the paper's games is judged on all of them; on fewer it is SHORT.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intrigue.scores import Interval, stats
from intrigue.studies.base import Verdict


def ordered(interval: Interval | None, above: float = 0.0) -> Verdict:
    """Whether what the interval is of lies above a bound."""
    if interval is None or interval[0] <= above <= interval[1]:
        return "SHORT"
    return "PASS" if interval[0] > above else "FAIL"


def reached(interval: Interval | None, value: float, nominal: bool) -> Verdict:
    """Whether a value of the paper is reached; `nominal`: trained as long as the paper's settings say."""
    if interval is None:
        return "SHORT"
    if interval[1] >= value:
        return "PASS"
    return "FAIL" if nominal else "SHORT"


def difference(ours: Sequence[float], theirs: Sequence[float], times: float = 1.0) -> Interval | None:
    """Interval over seeds of mean(ours) − times · mean(theirs) in one game; None for one seed.

    All resamples at once: a table asks for two of these per game.
    """
    if min(len(ours), len(theirs)) < 2:
        return None
    rng = np.random.default_rng(0)
    means = [
        np.asarray(values)[rng.integers(len(values), size=(stats.RESAMPLES, len(values)))].mean(axis=1)
        for values in (ours, theirs)
    ]
    tail = 50 * (1 - stats.CONFIDENCE)
    low, high = np.percentile(means[0] - times * means[1], [tail, 100 - tail])
    return float(low), float(high)


def spread_difference(ours: Sequence[float], theirs: Sequence[float]) -> Interval | None:
    """Interval over seeds of the difference of standard deviations; None below three seeds, which have hardly one."""
    if min(len(ours), len(theirs)) < 3:
        return None
    return stats.difference_interval(ours, theirs, np.random.default_rng(0), statistic=lambda drawn: float(drawn.std()))


def span(interval: Interval | None, digits: int = 2) -> str:
    """An interval in a table."""
    return "-" if interval is None else f"[{figure(interval[0], digits)}, {figure(interval[1], digits)}]"


def figure(value: float, digits: int = 2) -> str:
    """A score for a table: no more digits than mean anything."""
    return f"{value:.{digits}f}" if abs(value) < 100 else f"{value:,.0f}"


def scores_text(values: Sequence[float]) -> str:
    """A mean score with the sample standard deviation over seeds where there are two."""
    if not values:
        return "-"
    spread = stats.std(values)
    return figure(stats.mean(values)) + ("" if spread is None else f" ± {figure(spread)}")
