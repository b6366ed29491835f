"""From a configuration to the parts of a run. The only place that picks a device and constructs things."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from intrigue.agents.base import ReplayAgent
from intrigue.agents.random import RandomAgent, RandomConfig
from intrigue.agents.registry import AGENTS
from intrigue.config.compatibility import pair_problems
from intrigue.config.run import RunConfig
from intrigue.curiosity.curiosity import Curiosity
from intrigue.envs.pool.config import PoolConfig, can_busy_wait, worker_count
from intrigue.envs.pool.pool import Pool, make_pool
from intrigue.envs.registry import ENVS
from intrigue.errors import ConfigError, Problem
from intrigue.ops.execution import pick_mode
from intrigue.ops.precision import set_matmul_dtype
from intrigue.rng import Streams, seeded_construction
from intrigue.skills import SkillSampler, SkillSpec
from intrigue.spaces import Spaces
from intrigue.training.memory_budget import refuse_before_start, refuse_too_large, replay_footprint, rollout_footprint
from intrigue.training.parts import Parts
from intrigue.training.rollout_collector import Collector

if TYPE_CHECKING:
    from intrigue.training.off_policy import ReplayParts
    from intrigue.training.pool_prestart import PrestartedPools


def pick_device(name: str) -> torch.device:
    """The device of that name; `auto` is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError("device: 'cuda' was asked for, but torch sees no GPU. Use --device cpu or auto.")
    return torch.device(name)


def build(
    cfg: RunConfig, plugins: Sequence[Path] = (), *, concurrent_runs: int = 1, pools: PrestartedPools | None = None
) -> Parts | ReplayParts:
    """All parts of a run, not yet started: one of `concurrent_runs` that train in this process.

    `pools` may have begun to start its pool already.
    """
    device = pick_device(cfg.run.device)
    for path in plugins:
        ENVS.add_file(path)
    refuse_before_start(cfg, device)
    pool = pools.take(cfg) if pools is not None else None
    if pool is None:
        pool = make_run_pool(cfg, plugins, concurrent_runs)
    try:
        return assemble(cfg, pool, device)
    except BaseException:
        pool.close()
        raise


def make_run_pool(
    cfg: RunConfig, plugins: Sequence[Path], concurrent_runs: int, cancel: threading.Event | None = None
) -> Pool:
    """The pool of one of `concurrent_runs` runs in this process; setting `cancel` ends a start in progress."""
    workers = worker_count(pool := pool_config_for(cfg, concurrent_runs))
    # A learner on the CPU wants every core itself.
    busy_wait = pick_device(cfg.run.device).type == "cuda" and can_busy_wait(workers * concurrent_runs)
    return make_pool(cfg.env_id, cfg.env_options, pool, cfg.run.seed, plugins, busy_wait=busy_wait, cancel=cancel)


def pool_config_for(cfg: RunConfig, concurrent_runs: int) -> PoolConfig:
    """The pool's settings for one of `concurrent_runs` runs in this process. They do not change what a pool gives."""
    if concurrent_runs == 1:
        return cfg.pool
    pool = dataclasses.replace(cfg.pool, pin=False)  # every run would take the same first cores
    if worker_count(pool) or cfg.env_options.get("native_vector"):
        return pool
    return dataclasses.replace(pool, workers=1)  # in this process one seed's step would wait for another's


def assemble(cfg: RunConfig, pool: Pool, device: torch.device) -> Parts | ReplayParts:
    """The learning parts around a pool."""
    seed = cfg.run.seed
    names = ("extrinsic", "intrinsic") if cfg.curiosity.streams == "two" else ("total",)
    entry = AGENTS.get(cfg.agent_name)
    curiosity = Curiosity.from_config(
        cfg.reward_name, cfg.reward_options, cfg.curiosity, pool.spaces, device=device, seed=seed
    )
    if wrong := pair_problems(cfg.reward_name, cfg.reward_options, cfg.agent_name, curiosity.reward):
        raise ConfigError(wrong)
    spaces = with_skills(pool.spaces, curiosity.skills)
    agent_cfg = entry.config(**{**entry.defaults, **cfg.agent_options})
    if issubclass(entry.cls, ReplayAgent) and (reason := entry.cls.refusal(agent_cfg, spaces)):
        raise ConfigError([Problem("agent", f"{cfg.agent_name}: {reason}")])
    with seeded_construction(seed, f"init/agent/{cfg.agent_name}"):
        agent = entry.cls(agent_cfg, spaces, names).to(device)
    mode = pick_mode(cfg.run.execution, device)
    set_matmul_dtype(cfg.run.products)
    agent.execute(mode)
    curiosity.execute(mode)
    streams = Streams(seed, device)
    course = SkillSampler(curiosity.skills, pool.num_envs, streams["skill"])
    warm_up_agent = RandomAgent(RandomConfig(agent.rollout_steps), spaces, names)
    if isinstance(agent, ReplayAgent):
        return _replay_parts(cfg, pool, device, agent, warm_up_agent, curiosity, streams, course)
    if cfg.curiosity.follow != "drawn":
        text = f"{cfg.curiosity.follow!r} is for agents that learn from replay. Use 'drawn', or --agent ddpg."
        raise ConfigError([Problem("curiosity.follow", text)])
    reads = len(curiosity.reward.traits.inputs & {"obs", "next_obs"})
    need = rollout_footprint(agent.rollout_steps, pool.num_envs, spaces, reads, device)
    refuse_too_large([need])
    return Parts(
        collector=Collector(pool, agent.rollout_steps, device, course),
        agent=agent,
        warm_up_agent=warm_up_agent,
        curiosity=curiosity,
        streams=streams,
        footprint=need,
    )


def _replay_parts(
    cfg: RunConfig,
    pool: Pool,
    device: torch.device,
    agent: ReplayAgent,
    warm_up_agent: RandomAgent,
    curiosity: Curiosity,
    streams: Streams,
    course: SkillSampler,
) -> ReplayParts:
    """The parts of an agent that learns from replay; imported here, so that others do not load them."""
    from intrigue.replay.buffer import ReplayBuffer
    from intrigue.training.off_policy import ReplayParts
    from intrigue.training.replay_collector import ReplayCollector
    from intrigue.training.skill_selection import SkillChoice

    spaces = with_skills(pool.spaces, curiosity.skills)
    need = replay_footprint(agent.plan, spaces, pool.num_envs, pool.stack, device)
    refuse_too_large([need])
    kept = ReplayBuffer(
        agent.plan,
        spaces,
        pool.num_envs,
        stack=pool.stack,
        seed=cfg.run.seed,
        device=device,
        storage_device=need.device,
    )
    collector = ReplayCollector(pool, kept, course)
    choice = SkillChoice(cfg.curiosity.follow, collector, curiosity, agent.plan.learning_starts)
    return ReplayParts(collector, agent, warm_up_agent, curiosity, streams, need, choice)


def with_skills(spaces: Spaces, skills: SkillSpec | None) -> Spaces:
    """The spaces a policy sees under a reward with these skills."""
    return dataclasses.replace(spaces, skill=skills.width if skills else 0)
