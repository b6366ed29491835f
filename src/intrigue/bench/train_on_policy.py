"""Training from rollouts, timed: steps a second beside the pool's own, the share of each phase."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import torch

from intrigue.bench.env_rates import stepping
from intrigue.bench.machine import machine
from intrigue.bench.memory import resident_peak
from intrigue.bench.progress import Progress
from intrigue.bench.train_phases import SETTLING, phases
from intrigue.config.run import RunConfig
from intrigue.run.driver import use_threads
from intrigue.training.build import build
from intrigue.training.parts import Parts

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
