"""Which loop trains which parts, alone or several seeds of one setting together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from intrigue.config import RunConfig
from intrigue.errors import RunError
from intrigue.footprint import free_bytes, readable
from intrigue.training.parts import Parts
from intrigue.training.replay import ReplayParts, replay
from intrigue.training.rollout import rollout
from intrigue.types import Episode, Metrics, Progress

AnyParts: TypeAlias = Parts | ReplayParts
Stops: TypeAlias = Callable[[int], int]
"""The next agent step at which somebody wants to look, from a step on. It may be asked after every step, and its answer
may come nearer meanwhile (a signal arrived), never go further away."""


def loop(parts: AnyParts, warmup_steps: int) -> Iterator[Progress]:
    """Train for ever, from rollouts or from replay, as the agent learns."""
    return replay(parts, warmup_steps) if isinstance(parts, ReplayParts) else rollout(parts, warmup_steps)


def loop_all(parts: Sequence[AnyParts], warmup_steps: int, stops: Stops) -> Iterator[list[Progress]]:
    """Train one or several for ever; one Progress for each of them, all at the same step, at every stop or more often.

    Several must be such that `apart_because` gives None.
    """
    if len(parts) == 1:
        return ([progress] for progress in loop(parts[0], warmup_steps))
    return loops_together([each for each in parts if isinstance(each, ReplayParts)], warmup_steps, stops)


def loops_together(parts: Sequence[ReplayParts], warmup_steps: int, stops: Stops) -> Iterator[list[Progress]]:
    """Train several seeds in step with each other; yields at every stop, with all episodes since the last one.

    Raises:
        RunError: one of them failed; the message names its seed.
    """
    loops = [replay(each, warmup_steps) for each in parts]
    step = parts[0].collector.step_count
    while True:
        episodes: list[list[Episode]] = [[] for _ in parts]
        metrics: list[Metrics] = [{} for _ in parts]
        arrived = False
        while not arrived:
            before = step
            for row, (each, one) in enumerate(zip(parts, loops, strict=True)):
                with of_seed(each.streams.seed):
                    progress = next(one)
                episodes[row] += progress.episodes
                metrics[row] = progress.metrics or metrics[row]
                step = progress.step
            arrived = step >= stops(before)
        yield [Progress(step, *found) for found in zip(episodes, metrics, strict=True)]


def apart_because(cfg: RunConfig, parts: AnyParts, seeds: int) -> str | None:
    """Why so many seeds of this setting cannot learn together, in words; None if they can. `parts` are one seed's."""
    if not isinstance(parts, ReplayParts):
        return f"{cfg.agent_name!r} learns from its rollouts; only agents with a replay learn together"
    need, free = parts.footprint, free_bytes(parts.footprint.device)
    if free is not None and seeds * need.bytes > free:
        whole = readable(seeds * need.bytes)
        return f"together their replays need {whole}, {need.device.type} has {readable(free)} free"
    return None


@contextlib.contextmanager
def of_seed(seed: int) -> Iterator[None]:
    """A scope whose failures are this seed's, and say so."""
    try:
        yield
    except RunError as error:
        raise type(error)(f"seed {seed}: {error}") from error
