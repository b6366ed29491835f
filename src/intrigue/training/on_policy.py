"""The on-policy loop: act, collect, reward, learn; a generator that yields after every step of the environments.

Logging, evaluation, checkpoints and stopping live in the driver; a run can be left and taken up at any yield.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from intrigue.training.parts import Parts
from intrigue.types import Metrics, Progress


def train_on_policy(parts: Parts, warmup_steps: int) -> Iterator[Progress]:
    """Train for ever. The first rollouts, up to `warmup_steps`, are random and only feed the observation moments."""
    collector, streams = parts.collector, parts.streams
    began = time.monotonic()
    while True:
        warming = collector.rollout_start < warmup_steps
        agent = parts.warm_up_agent if warming else parts.agent
        episodes = collector.step(agent, streams["act"])
        if not warming:
            parts.curiosity.prefetch_features(collector.observations, collector.cursor)
        metrics: Metrics = {}
        if collector.full:
            metrics = _learn(parts, warming, time.monotonic() - began)
            began = time.monotonic()
        yield Progress(collector.step_count, episodes, metrics)


def _learn(parts: Parts, warming: bool, collect_seconds: float) -> Metrics:
    """One update of everything that learns, from the rollout just filled."""
    batch, extras = parts.collector.take()
    steps = batch.reward.numel()
    if warming:
        seen = batch.next_obs[batch.valid]
        parts.curiosity.warm_up(seen)
        parts.agent.warm_up(seen)
        return {"charts/SPS": steps / max(collect_seconds, 1e-9)}
    began = time.monotonic()
    rewards = parts.curiosity.step_batch(batch)
    scored = time.monotonic()
    losses = parts.agent.update(
        batch, rewards.streams, extras, rng=parts.streams["update"], step=parts.collector.step_count
    )
    ended = time.monotonic()
    bait = parts.collector.pool.distractor_action
    baited: Metrics = {} if bait is None else {"charts/bait_share": float((batch.action == bait).float().mean())}
    return {
        **rewards.metrics,
        **losses,
        **baited,
        "charts/SPS": steps / max(collect_seconds + ended - began, 1e-9),
        "time/collect_fraction": collect_seconds / max(collect_seconds + ended - began, 1e-9),
        "time/curiosity_fraction": (scored - began) / max(collect_seconds + ended - began, 1e-9),
    }
