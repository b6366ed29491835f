"""The final numbers of runs and arms.

value of a run   coverage, mean return of its last 100 episodes and of its last evaluation, step of the first episode
                 with a positive return, mean bonus, steps per second
value of an arm  the mean over its counted runs with a 95 % bootstrap interval; no interval for one run, and no
                 mean at all when a counted run lacks the value: the runs that have it would not speak for it
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from intrigue.report.arms import ArmRuns
from intrigue.report.record import RunRecord
from intrigue.report.text import ABSENT
from intrigue.run.logging.journal import WINDOW
from intrigue.scores.stats import bootstrap_interval, mean

INTERVAL_SEED = 0  # any fixed number: the same runs must give the same page


@dataclass(frozen=True)
class Estimate:
    """A mean over runs; `low` and `high` are None for one run, `mean` is None when `missing` runs have no value."""

    mean: float | None
    low: float | None
    high: float | None
    runs: int
    missing: int = 0

    def text(self, form: Callable[[float], str]) -> str:
        """The mean, and the interval in brackets where there is one, its unit not repeated."""
        if self.mean is None:
            return f"not measured in {self.missing} of {self.runs}" if self.missing < self.runs else ABSENT
        if self.low is None or self.high is None:
            return form(self.mean)
        low, high = (form(end).removesuffix(" %") for end in (self.low, self.high))
        return f"{form(self.mean)} [{low}, {high}]"


def estimate(values: Sequence[float | None]) -> Estimate:
    """The mean of one value per run and its interval."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known or len(known) < len(values):
        return Estimate(None, None, None, len(values), len(values) - len(known))
    interval = bootstrap_interval(known, np.random.default_rng(INTERVAL_SEED))
    low, high = (None, None) if interval is None else interval
    return Estimate(mean(known), low, high, len(known))


def estimate_arm(arm: ArmRuns, value: Callable[[RunRecord], float | None]) -> Estimate:
    """The estimate of one value over the counted runs."""
    return estimate([value(run) for run in arm.counted])


def coverage(run: RunRecord) -> float | None:
    """Share of the places entered at least once, by the latest count there is; None where places are unknown."""
    logged, steps = _finite_values(run, "charts/coverage")
    if run.visits is not None and (not steps or run.visits_step >= steps[-1]):
        return float((run.visits > 0).mean())
    return logged[-1] if logged else None


def last_return(run: RunRecord) -> float | None:
    """Mean raw return of the last 100 finished episodes; None before the first one ends."""
    returns = run.episodes.get("episodic_return", [])[-WINDOW:]
    return sum(returns) / len(returns) if returns else None


def last_evaluation(run: RunRecord, column: str = "eval/return_mean") -> float | None:
    """What the last evaluation found, by default the mean return, a fine-tuning's score; None where none was made."""
    values = run.evaluations.get(column, [])
    return values[-1] if values else None


def last_share(run: RunRecord) -> float | None:
    """The same as a share of the expert's score, in URLB's tasks."""
    return last_evaluation(run, "eval/normalized")


def first_success(run: RunRecord) -> float | None:
    """The step at which the first episode with a positive return ended; None if there was none."""
    pairs = zip(run.episodes.get("step", []), run.episodes.get("episodic_return", []), strict=True)
    return next((step for step, value in pairs if value > 0), None)


def mean_bonus(run: RunRecord) -> float | None:
    """The raw bonus averaged over the logged updates."""
    values, _ = _finite_values(run, "intrinsic/raw_mean")
    return sum(values) / len(values) if values else None


def frames_per_step(run: RunRecord) -> float:
    """Frames of the simulator per agent step."""
    for table in (run.metrics, run.episodes):
        steps, frames = table.get("step", []), table.get("frame", [])
        if steps and frames and steps[-1] > 0 and math.isfinite(frames[-1]):
            return frames[-1] / steps[-1]
    return 1.0


def speed(run: RunRecord) -> float | None:
    """Agent steps per second from the start to the last logged update."""
    steps, seconds = run.metrics.get("step", []), run.metrics.get("wall_seconds", [])
    return steps[-1] / seconds[-1] if steps and seconds and seconds[-1] > 0 else None


def describe_success(arm: ArmRuns, form: Callable[[float], str]) -> str:
    """When the counted runs first succeeded; runs that never did are counted, never left out of a mean."""
    found = [first_success(run) for run in arm.counted]
    steps = sorted(step for step in found if step is not None)
    missing = len(found) - len(steps)
    if not found:
        return ABSENT
    if not missing:
        return estimate(found).text(form)
    absent = "not found" if len(found) == 1 else f"not found in {missing} of {len(found)}"
    if not steps:
        return absent
    when = form(steps[0]) if len(steps) == 1 else f"{form(steps[0])} to {form(steps[-1])}"
    return f"{when}; {absent}"


def _finite_values(run: RunRecord, column: str) -> tuple[list[float], list[float]]:
    """The finite values of a metric and their steps."""
    pairs = zip(run.metrics.get(column, []), run.metrics.get("step", []), strict=False)
    kept = [(value, step) for value, step in pairs if math.isfinite(value)]
    return [value for value, _ in kept], [step for _, step in kept]
