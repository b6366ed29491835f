"""Jobs on the cores and the GPU of one machine: when each may start, so that nothing is asked for twice at once.

A job keeps `cores` and a share of the GPU from its start to its end. The more worthy job is placed first, each as
early as it can be; the others fill what is left. A group, a pre-training with its fine-tunings, is placed whole or not
at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

EPSILON = 1e-9  # of sums of shares


@dataclass(frozen=True)
class Job:
    """One process. `after` names the job whose folder it needs; `runs` are what its rows are of."""

    name: str
    argv: tuple[str, ...]
    cores: int
    gpu: float
    seconds: float
    after: str = ""
    runs: tuple[dict[str, Any], ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Placed:
    """A job and the seconds it is to begin and to end at."""

    job: Job
    start: float
    end: float


@dataclass(frozen=True)
class Room:
    """What a lease has."""

    cores: int
    gpu: float
    seconds: float


def pack(groups: Iterable[Sequence[Job]], room: Room) -> list[Placed]:
    """The groups that fit, most worthy first; within a group a job follows the one it needs."""
    placed: list[Placed] = []
    for group in groups:
        trial = list(placed)
        for job in group:
            before = max((each.end for each in trial if each.job.name == job.after), default=0.0)
            start = earliest(job, trial, room, before)
            if start is None or start + job.seconds > room.seconds:
                break
            trial.append(Placed(job, start, start + job.seconds))
        else:
            placed = trial
    return placed


def earliest(job: Job, placed: Sequence[Placed], room: Room, not_before: float) -> float | None:
    """When there is place for a job beside these from then on to its end; None: it is too large for the room."""
    if job.cores > room.cores or job.gpu > room.gpu + EPSILON:
        return None
    starts = sorted({not_before, *(each.end for each in placed if each.end > not_before)})
    return next(start for start in starts if _fits(job, start, placed, room))


def _fits(job: Job, start: float, placed: Sequence[Placed], room: Room) -> bool:
    beside = [each for each in placed if each.start < start + job.seconds and each.end > start]
    # What is used changes upwards only where something starts.
    for moment in {start, *(each.start for each in beside if each.start > start)}:
        there = [each.job for each in beside if each.start <= moment < each.end]
        if sum(each.cores for each in there) + job.cores > room.cores:
            return False
        if sum(each.gpu for each in there) + job.gpu > room.gpu + EPSILON:
            return False
    return True
