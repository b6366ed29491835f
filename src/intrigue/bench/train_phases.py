"""Where the time of training goes: stepping, scoring, the reward's learning, the agent's."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from intrigue.ops.precision import exact_float32
from intrigue.training.parts import Parts
from intrigue.types import Transitions

# The first rollouts choose kernels, capture graphs and fill caches.
SETTLING = 2
SCORINGS = 3  # Repeated, because one scoring is short beside a rollout.


@dataclass
class Phases:
    """Seconds of each counted rollout, phase by phase."""

    collect: list[float] = field(default_factory=list)
    curiosity: list[float] = field(default_factory=list)
    agent: list[float] = field(default_factory=list)
    score: float = 0.0  # of one rollout, within `curiosity`
    ahead: float = 0.0  # of scoring one rollout, what a GPU does while environments step

    def total(self) -> float:
        """Seconds of all counted rollouts."""
        return sum(self.collect) + sum(self.curiosity) + sum(self.agent)

    def shares(self) -> dict[str, float]:
        """The share of each phase in the whole."""
        total, rollouts = self.total(), len(self.collect)
        scoring = self.score * rollouts
        return {
            "collect": sum(self.collect) / total,
            "score": scoring / total,
            "reward_learning": (sum(self.curiosity) - scoring) / total,
            "agent_learning": sum(self.agent) / total,
        }


def phases(parts: Parts, rollouts: int, told: Callable[[int], None]) -> Phases:
    """Train for `rollouts` rollouts after the settling ones."""
    found, collector = Phases(), parts.collector
    clock = _synchronised(collector.device)
    batch: Transitions | None = None
    for number in range(SETTLING + rollouts):
        began = clock()
        while not collector.full:
            collector.step(parts.agent, parts.streams["act"])
            parts.curiosity.look_ahead(collector.shown, collector.cursor)
        batch, extras = collector.take()
        filled = clock()
        rewards = parts.curiosity.step_batch(batch)
        rewarded = clock()
        parts.agent.update(batch, rewards.streams, extras, rng=parts.streams["update"], step=collector.step_count)
        learned = clock()
        if number >= SETTLING:
            found.collect.append(filled - began)
            found.curiosity.append(rewarded - filled)
            found.agent.append(learned - rewarded)
        told(number + 1)
    assert batch is not None
    found.score = _score_seconds(parts, batch, clock, ahead=True)
    if collector.device.type == "cuda":
        found.ahead = _score_seconds(parts, batch, clock, ahead=False) - found.score
    return found


def _score_seconds(parts: Parts, batch: Transitions, clock: Callable[[], float], *, ahead: bool) -> float:
    """Scoring changes nothing, so it is timed by itself; without what is made `ahead`, if it is."""
    curiosity, taken = parts.curiosity, []
    for _ in range(SCORINGS):
        if ahead:
            curiosity.look_ahead(batch.obs, len(batch.obs))
        began = clock()
        with torch.no_grad(), exact_float32():
            curiosity.reward.score_parts(curiosity.encoded(batch))
        taken.append(clock() - began)
    return sorted(taken)[SCORINGS // 2]


def _synchronised(device: torch.device) -> Callable[[], float]:
    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    return now
