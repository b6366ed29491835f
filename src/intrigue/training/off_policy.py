"""The loop of agents that learn from replay: act, keep, draw, reward, learn; yields after every step.

One update:   sample ──► Curiosity.step_batch (score with the models as they are, then learn) ──► Agent.update

A transition is paid what it is worth when it is drawn, not what it was worth when it happened. Batches have no order in
time, so the bonus is scaled by the spread of its values. Schedules count agent steps, however often they are drawn.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from intrigue.agents.base import ReplayAgent
from intrigue.curiosity.curiosity import Curiosity
from intrigue.replay.plan import updates_due
from intrigue.state import State
from intrigue.training.parts import RunParts
from intrigue.training.replay_collector import ReplayCollector
from intrigue.training.skill_selection import SkillChoice
from intrigue.types import Metrics, Progress


class MetricMeans:
    """Means of what the updates since the last log line gave."""

    def __init__(self) -> None:
        self._sums: dict[str, list[float]] = {}  # metric: its sum and how many updates gave it

    def add(self, metrics: Metrics) -> None:
        """What one update gave."""
        self.add_sums(metrics, 1)

    def add_sums(self, sums: Metrics, count: int) -> None:
        """What `count` updates gave, summed."""
        for name, total in sums.items():
            pair = self._sums.setdefault(name, [0.0, 0.0])
            pair[0] += total
            pair[1] += count

    def take(self) -> Metrics:
        """The means, in the order in which they first came; the next ones begin anew."""
        means = {name: total / count for name, (total, count) in self._sums.items()}
        self._sums = {}
        return means

    def state_dict(self) -> State:
        """The sums so far."""
        return {"names": list(self._sums), "sums": [list(pair) for pair in self._sums.values()]}

    def load_state_dict(self, state: State) -> None:
        """Put back what `state_dict` gave."""
        self._sums = {name: list(pair) for name, pair in zip(state["names"], state["sums"], strict=True)}


@dataclass
class PhaseTimer:
    """Where the time between two log lines went."""

    began: float = field(default_factory=time.monotonic)
    curiosity: float = 0.0
    learning: float = 0.0

    def fractions(self, steps: int) -> Metrics:
        """Steps a second, and the share of each phase."""
        whole = max(time.monotonic() - self.began, 1e-9)
        return {
            "charts/SPS": steps / whole,
            "time/collect_fraction": (whole - self.curiosity - self.learning) / whole,
            "time/curiosity_fraction": self.curiosity / whole,
        }


@dataclass
class ReplayParts(RunParts[ReplayCollector, ReplayAgent]):
    """The parts of a run with replay."""

    choice: SkillChoice
    tally: MetricMeans = field(default_factory=MetricMeans)

    def state_dict(self) -> State:
        """The whole training state."""
        return {**super().state_dict(), "tally": self.tally.state_dict(), "choice": self.choice.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Go on from what `state_dict` gave."""
        super().load_state_dict(state)
        self.tally.load_state_dict(state["tally"])
        self.choice.load_state_dict(state["choice"])


def train_off_policy(parts: ReplayParts, warmup_steps: int) -> Iterator[Progress]:
    """Train for ever. The first steps, until learning starts, are random; up to `warmup_steps` feed the moments."""
    collector, agent, plan = parts.collector, parts.agent, parts.agent.plan
    pool = collector.pool
    clock = PhaseTimer()
    while True:
        before = collector.step_count
        warming, idle = before < warmup_steps, before < plan.learning_starts
        actor = parts.warm_up_agent if warming or idle else agent
        episodes, action = collector.step(actor, parts.streams["act"])
        step = collector.step_count
        parts.choice.note(episodes)
        if warming:
            seen = collector.replay.last_next_obs()
            parts.curiosity.warm_up(seen)
            agent.warm_up(seen)
        elif len(collector.replay):
            for _ in range(updates_due(step, pool.num_envs, plan)):
                parts.tally.add(_update(parts, clock))
        if pool.distractor_action is not None and not (warming or idle):
            parts.tally.add({"charts/bait_share": float((action == pool.distractor_action).float().mean())})
        metrics: Metrics = {}
        if (step // pool.num_envs) % agent.rollout_steps == 0:
            metrics = {**parts.tally.take(), **clock.fractions(agent.rollout_steps * pool.num_envs)}
            clock = PhaseTimer()
        yield Progress(step, episodes, metrics)


def _update(parts: ReplayParts, clock: PhaseTimer) -> Metrics:
    """One update of everything that learns, from what is drawn."""
    kept, step = parts.collector.replay, parts.collector.step_count
    began = time.monotonic()
    sample = kept.sample(step)
    drawn = time.monotonic()
    _tell_step(parts.curiosity, step)
    rewards = parts.curiosity.step_batch(sample.batch)
    scored = time.monotonic()
    losses = parts.agent.update(sample.batch, rewards.streams, sample.extras, rng=parts.streams["update"], step=step)
    kept.update_priorities(sample, parts.agent.errors)
    clock.curiosity += scored - drawn
    clock.learning += time.monotonic() - scored + drawn - began
    return {**rewards.metrics, **losses, "charts/replayed": float(len(kept))}


@torch.no_grad()
def _tell_step(curiosity: Curiosity, step: int) -> None:
    """Schedules of coefficients go by agent steps, of which a batch drawn again is none."""
    curiosity.steps_seen = step
    curiosity.reward.set_step(step)
