"""The loop of runs that learn stacked: to the next step at which somebody wants to look, again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from intrigue.training.off_policy import ReplayParts
from intrigue.training.stacked.trainer import Cohort
from intrigue.types import Progress


def stacked(parts: Sequence[ReplayParts], stops: Callable[[int], int]) -> Iterator[list[Progress]]:
    """Train for ever; at every stop one Progress for each seed, all at the same step.

    `stops(step)` is the next step to stop at, seen from a step; it may come nearer while it is on its way.
    """
    cohort = Cohort(parts)
    while True:
        before = cohort.step_count
        cohort.step()
        while cohort.step_count < stops(before):
            cohort.step()
        yield cohort.settle()
