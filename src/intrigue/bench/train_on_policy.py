"""Training from rollouts, timed: steps a second beside the pool's own, the share of each phase.

Where the time of training goes: stepping, scoring, the reward's learning, the agent's.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from intrigue.bench.env_rates import stepping
from intrigue.bench.machine import machine, resident_peak
from intrigue.bench.timing import Progress
from intrigue.config.run import RunConfig
from intrigue.ops.precision import exact_float32
from intrigue.run.build import use_threads
from intrigue.training.build import build
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
            parts.curiosity.prefetch_features(collector.observations, collector.cursor)
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
            curiosity.prefetch_features(batch.obs, len(batch.obs))
        began = clock()
        with torch.no_grad(), exact_float32():
            curiosity.reward.score_parts(curiosity.encode(batch))
        taken.append(clock() - began)
    return sorted(taken)[SCORINGS // 2]


def _synchronised(device: torch.device) -> Callable[[], float]:
    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    return now


CEILING_SECONDS = 4.0  # before training and again after it: a shared machine is not equally fast twice


def measured(cfg: RunConfig, preset: str, rollouts: int) -> dict[str, Any]:
    """Every figure of the page."""
    use_threads(cfg.run.threads)
    began = time.perf_counter()
    with contextlib.closing(build(cfg)) as parts:
        assert isinstance(parts, Parts)
        pool, device = parts.collector.pool, parts.collector.device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        parts.collector.start()
        started = time.perf_counter() - began
        before = stepping(pool, CEILING_SECONDS)
        parts.collector.start()
        with torch.no_grad():
            parts.curiosity.warm_up(parts.collector.current().unsqueeze(0))
            parts.agent.warm_up(parts.collector.current().unsqueeze(0))
        with Progress("rollout") as told:
            found = phases(parts, rollouts, lambda done: told(done, SETTLING + rollouts))
        after = stepping(pool, CEILING_SECONDS)
        steps = pool.num_envs * parts.collector.rollout_steps
        speed = steps * rollouts / found.total()
        reached = (before + after) / 2
        return {
            "target": "train",
            **machine(device),
            "preset": preset,
            "env": cfg.env_id,
            "reward": cfg.reward_name,
            "execution": parts.agent.mode if hasattr(parts.agent, "mode") else "plain",
            "envs": pool.num_envs,
            "workers": cfg.pool.workers,
            "groups": len(pool.groups),
            "rollout_steps": parts.collector.rollout_steps,
            "start_seconds": started,
            "ceiling_before": before,
            "ceiling_after": after,
            "steps_per_second": speed,
            "ratio_to_ceiling": speed / reached,
            "shares": found.shares(),
            "seconds_per_rollout": found.total() / rollouts,
            "score_milliseconds": 1e3 * found.score,
            "score_ahead_milliseconds": 1e3 * found.ahead,
            "host_peak_mib": resident_peak() / 2**20,
            "device_peak_mib": torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None,
        }


def told(figures: dict[str, Any]) -> str:
    """The figures for a person."""
    shares = ", ".join(f"{name.replace('_', ' ')} {share:.1%}" for name, share in figures["shares"].items())
    gpu = "" if figures["device_peak_mib"] is None else f", GPU {figures['device_peak_mib']:,.0f} MiB"
    early = figures["score_ahead_milliseconds"]
    ahead = f", and {early:.1f} ms while environments step" if gpu else ""
    return (
        f"{figures['preset']} on {figures['env']}: {figures['envs']} environments, {figures['execution']} execution\n"
        f"  training          {figures['steps_per_second']:>10,.0f} steps/s\n"
        f"  random actions    {figures['ceiling_before']:>10,.0f} steps/s before, "
        f"{figures['ceiling_after']:,.0f} after, same pool\n"
        f"  ratio             {figures['ratio_to_ceiling']:>10.2f}\n"
        f"  shares            {shares}\n"
        f"  one rollout       {figures['seconds_per_rollout']:>10.3f} s, score {figures['score_milliseconds']:.1f} ms"
        f"{ahead}\n"
        f"  start             {figures['start_seconds']:>10.1f} s\n"
        f"  peak memory       {figures['host_peak_mib']:>10,.0f} MiB host with workers{gpu}\n"
    )
