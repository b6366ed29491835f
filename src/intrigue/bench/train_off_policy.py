"""Training from replay, timed: an update's milliseconds, steps a second beside the pool's own, shares of the phases.

The replay is filled by random steps until two episodes are over, so that draws are of the real thing. Then steps and
updates follow each other in the preset's own rhythm, some of them unmeasured first. The projection is for the preset's
whole run: its random steps at the environments' rate, the others at the rate found here. It leaves out evaluations and
checkpoints, and a replay that is full does not cost more than one that is not.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from intrigue.bench.env_rates import stepping_together
from intrigue.bench.machine import machine, resident_peak
from intrigue.bench.off_policy_engines import PHASES, Engine, engine_of
from intrigue.bench.timing import PhaseClock, Progress
from intrigue.config.run import RunConfig
from intrigue.envs.pool.config import worker_count
from intrigue.replay.plan import ReplayPlan, updates_due
from intrigue.run.build import resolve_machine_settings
from intrigue.training.build import build, pool_config_for
from intrigue.training.off_policy import ReplayParts
from intrigue.training.pool_prestart import PrestartedPools

CEILING_SECONDS = 3.0  # before training and again after it: a shared machine is not equally fast twice
FINISHED = 2  # Episodes before the first draw, of every seed.
# Updates timed, and those before them in which kernels are chosen, graphs captured and caches filled. On two cores an
# update of URLB's sizes takes up to 0.4 s; on a GPU a few milliseconds.
UPDATES = {"cpu": 40, "cuda": 400}
SETTLING = {"cpu": 4, "cuda": 40}
LEAST, MOST_SECONDS = 8, 40.0  # If no number is asked for: at least so many, and no more after so long.

ENGINES = {"OneByOne": "one by one", "Together": "together"}

MakeEngine = Callable[[Sequence[ReplayParts]], Engine]


@dataclass(frozen=True)
class Timed:
    """What the measured part of training took."""

    steps: int
    """Agent steps of each seed."""
    wall: float
    """Seconds."""
    spans: dict[str, list[float]]
    """Seconds of every span by name; `update` is all of an update."""

    def shares(self) -> dict[str, float]:
        """The share of each phase that the engine tells apart, and of what is left over; a GPU's phases may overlap."""
        phases = PHASES if "agent" in self.spans else (*PHASES, "update")
        shares = {name: sum(self.spans[name]) / self.wall for name in phases if name in self.spans}
        return {**shares, "rest": max(0.0, 1 - sum(shares.values()))}


def measured(
    cfg: RunConfig, preset: str, seeds: Sequence[int], updates: int | None, make_engine: MakeEngine = engine_of
) -> dict[str, Any]:
    """Every figure of the page."""
    cfg = resolve_machine_settings(cfg)
    began = time.perf_counter()
    with contextlib.ExitStack() as stack:
        parts = _replay_parts(stack, [cfg.with_run(seed=seed) for seed in seeds])
        device, pools = parts[0].collector.replay.device, [each.collector.pool for each in parts]
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        for pool in pools:
            pool.reset()
        started = time.perf_counter() - began
        before = stepping_together(pools, CEILING_SECONDS)
        for each in parts:
            fill(each)
        plan, envs = parts[0].agent.plan, pools[0].num_envs
        count = updates or max(LEAST, UPDATES[device.type] // len(seeds))
        engine = make_engine(parts)
        train(engine, envs, max(1, SETTLING[device.type] // len(seeds)))
        with Progress("update") as told:
            found = train(engine, envs, count, MOST_SECONDS if updates is None else math.inf, told)
        engine.clock.leave()
        alone = back_to_back(engine, count) if device.type == "cuda" else None
        after = stepping_together(pools, CEILING_SECONDS)
        return {
            "target": "train",
            **machine(device),
            "preset": preset,
            "env": cfg.env_id,
            "reward": cfg.reward_name,
            "agent": cfg.agent_name,
            "execution": cfg.run.execution,
            "products": cfg.run.products,
            "engine": type(engine).__name__,
            "staleness_updates": engine.staleness,
            "seeds": list(seeds),
            "envs": envs,
            "workers": worker_count(pool_config_for(cfg, len(seeds))),
            "train_every": plan.train_every,
            "start_seconds": started,
            "ceiling_before": before,
            "ceiling_after": after,
            **speeds(found, count, len(seeds), (before + after) / 2),
            "update_milliseconds_back_to_back": alone,
            **projection(cfg.run.steps, plan, found, len(seeds), (before + after) / 2),
            "frames": cfg.run.steps * pools[0].frames_per_step,
            "host_peak_mib": resident_peak() / 2**20,
            "device_peak_mib": torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None,
        }


def fill(parts: ReplayParts) -> None:
    """Random steps, until so many episodes are over and a window can be drawn."""
    collector, finished = parts.collector, 0
    collector.start()
    while finished < FINISHED or not len(collector.replay):
        episodes, _ = collector.step(parts.warm_up_agent, parts.streams["act"])
        finished += len(episodes)


def train(
    engine: Engine,
    envs: int,
    updates: int,
    seconds: float = math.inf,
    told: Callable[[int, int], None] = lambda *_: None,
) -> Timed:
    """Steps and updates in the engine's rhythm, until so many updates are done, or time is up after LEAST of them."""
    engine.clock.forget()
    step = done = 0
    began = time.monotonic()
    with engine.clock.span("all"):
        while done < updates and (done < LEAST or time.monotonic() - began < seconds):
            begun = engine.advance()
            step += envs
            done += begun
            if begun:
                told(done, updates)
    spans = engine.clock.seconds()
    (wall,) = spans.pop("all")
    return Timed(step, wall, spans)


def back_to_back(engine: Engine, updates: int) -> float:
    """Milliseconds of an update among so many without a step between them: what a GPU takes, whatever the host does.

    In training a GPU that has nothing else to do waits for the launch, and acting comes in between.
    """
    clock = PhaseClock(engine.clock.device)
    with clock.span("all"):
        for _ in range(updates):
            engine.update()
    (seconds,) = clock.seconds()["all"]
    return 1e3 * seconds / updates


def speeds(found: Timed, asked: int, seeds: int, ceiling: float) -> dict[str, Any]:
    """Rates and shares; one update is one of every seed. The last step may bring a few more than were asked for."""
    each = sorted(1e3 * seconds for seconds in found.spans["update"])
    median, rate = statistics.median(each), seeds * found.steps / found.wall
    return {
        "updates_asked": asked,
        "updates": len(each),
        "update_milliseconds": median,
        "update_milliseconds_per_seed": median / seeds,
        "update_milliseconds_tenth": each[len(each) // 10],
        "update_milliseconds_nine_tenths": each[len(each) * 9 // 10],
        "steps": found.steps,
        "wall_seconds": found.wall,
        "steps_per_second": rate,
        "steps_per_second_per_seed": rate / seeds,
        "ratio_to_ceiling": rate / ceiling,
        "shares": found.shares(),
    }


def projection(steps: int, plan: ReplayPlan, found: Timed, seeds: int, ceiling: float) -> dict[str, Any]:
    """How long all seeds take for `steps` agent steps each, and how many updates each of them makes."""
    random = min(steps, plan.learning_starts)
    return {
        "whole_steps": steps,
        "whole_updates": updates_due(steps, steps, plan),
        "whole_seconds": seeds * random / ceiling + (steps - random) * found.wall / found.steps,
    }


def told(figures: dict[str, Any]) -> str:
    """The figures for a person."""
    seeds, envs, every = len(figures["seeds"]), figures["envs"], figures["train_every"]
    shares = ", ".join(f"{name} {share:.1%}" for name, share in figures["shares"].items())
    gpu = "" if figures["device_peak_mib"] is None else f", GPU {figures['device_peak_mib']:,.0f} MiB"
    # A GPU's updates are told apart by hundredths of a millisecond, a CPU's by whole ones.
    digits = 3 if figures["update_milliseconds"] < 10 else 1
    alone = f", {figures['update_milliseconds_per_seed']:.{digits}f} per seed" if seeds > 1 else ""
    apart = f", {figures['steps_per_second_per_seed']:,.1f} per seed" if seeds > 1 else ""
    behind, dense = figures["staleness_updates"], figures["update_milliseconds_back_to_back"]
    no_steps = "" if dense is None else f"  back to back      {dense:>10,.{digits}f} ms, without steps in between\n"
    whole = f"{figures['whole_steps']:,} steps ({figures['frames']:,} frames), {figures['whole_updates']:,} updates"
    whole += " of each seed" if seeds > 1 else ""
    return (
        f"{figures['preset']} on {figures['env']}: {_count(seeds, 'seed')}, {_count(envs, 'environment')} each, "
        f"one update per {_count(every, 'step')}, {figures['execution']} execution, {ENGINES[figures['engine']]}, "
        f"wide products in {figures['products']}\n"
        f"  one update        {figures['update_milliseconds']:>10,.{digits}f} ms{alone}; median of "
        f"{figures['updates']}, {figures['update_milliseconds_tenth']:,.{digits}f} to "
        f"{figures['update_milliseconds_nine_tenths']:,.{digits}f} from tenth to ninth tenth\n"
        f"{no_steps}"
        f"  training          {figures['steps_per_second']:>10,.1f} steps/s{apart}\n"
        f"  random actions    {figures['ceiling_before']:>10,.0f} steps/s before, "
        f"{figures['ceiling_after']:,.0f} after, same pool\n"
        f"  ratio             {figures['ratio_to_ceiling']:>10.3f}\n"
        f"  shares            {shares}\n"
        f"  whole run         {_duration(figures['whole_seconds']):>10} for {whole}\n"
        f"  acts with weights {behind:>10} {'update' if behind == 1 else 'updates'} old\n"
        f"  start             {figures['start_seconds']:>10.1f} s\n"
        f"  peak memory       {figures['host_peak_mib']:>10,.0f} MiB host with workers{gpu}\n"
    )


def _replay_parts(stack: contextlib.ExitStack, configs: Sequence[RunConfig]) -> list[ReplayParts]:
    """The parts of every seed; what is refused is refused before the first pool."""
    found: list[ReplayParts] = []
    with PrestartedPools((), concurrent_runs=len(configs)) as pools:
        for cfg in configs:
            parts = stack.enter_context(contextlib.closing(build(cfg, concurrent_runs=len(configs), pools=pools)))
            assert isinstance(parts, ReplayParts)
            found.append(parts)
            if cfg is configs[0]:
                pools.start(configs[1:])
    return found


def _count(number: int, of: str) -> str:
    return f"{number} {of}{'' if number == 1 else 's'}"


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"
