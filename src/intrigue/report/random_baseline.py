"""The random policy a report compares with when no run of it was given: played here, by the code a run would use.

For the same seed it visits exactly what `intrigue train --agent random --reward none` visits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from intrigue.agents.random import RandomAgent, RandomConfig
from intrigue.config.plugins import plugin_files
from intrigue.config.run import RunConfig
from intrigue.envs.pool.config import PoolConfig
from intrigue.envs.pool.pool import make_pool
from intrigue.report.arms import ArmRuns, Task, make_task
from intrigue.report.record import RunRecord
from intrigue.rng import Streams
from intrigue.run.logging.csv_files import EPISODE_COLUMNS
from intrigue.run.logging.journal import WINDOW
from intrigue.training.rollout_collector import Collector

STEP_CAP = 200_000  # ours: a few seconds a seed; a random walk gains little after that, and the page says so
SEED_CAP = 5  # ours: seeds simulated at most


def with_random_policy(task: Task) -> Task:
    """The task with a simulated random policy beside its arms, when it is a maze and has no run of one."""
    models = [arm for arm in task.arms if arm.counted and not arm.is_random]
    known = any(arm.is_random and arm.counted for arm in task.arms)
    if known or not models or task.maze is None:
        return task
    steps = min(STEP_CAP, max(run.step for arm in models for run in arm.counted))
    if steps < 1:
        return task
    seeds = sorted({run.seed for arm in models for run in arm.counted if run.seed is not None})[:SEED_CAP]
    played = [simulate(models[0].config, steps, seed) for seed in seeds]
    return make_task([*(run for arm in task.arms for run in arm.runs), *played])


def describe_cap(arms: Sequence[ArmRuns]) -> str | None:
    """A sentence on the simulated policy's length, where it is shorter than the runs."""
    simulated = max((run.step for arm in arms if arm.is_simulated for run in arm.runs), default=0)
    longest = max((run.step for arm in arms for run in arm.counted), default=0)
    if not simulated or simulated >= longest:
        return None
    return (
        f"The random policy was simulated for {simulated:,} steps, while the longest run here has {longest:,}: "
        "its coverage is that of the shorter time."
    )


def simulate(model: RunConfig, steps: int, seed: int) -> RunRecord:
    """A random policy in the environments of `model` for this many agent steps, rounded up to whole pool steps."""
    config = dataclasses.replace(
        model,
        agent_name="random",
        agent_options=dataclasses.asdict(RandomConfig()),
        reward_name="none",
        reward_options={},
        pool=PoolConfig(num_envs=model.pool.num_envs, workers=0),
        run=dataclasses.replace(model.run, seed=seed, steps=steps),
    )
    pool = make_pool(config.env_id, config.env_options, config.pool, seed, plugin_files())
    try:
        agent = RandomAgent(RandomConfig(), pool.spaces, ("total",))
        collector = Collector(pool, agent.rollout_steps, torch.device("cpu"))
        return _play(collector, agent, config)
    finally:
        pool.close()


def _play(collector: Collector, agent: RandomAgent, config: RunConfig) -> RunRecord:
    rng = Streams(config.run.seed)["act"]
    metrics: dict[str, list[float]] = {"step": [], "charts/episodic_return": [], "charts/coverage": []}
    episodes: dict[str, list[float]] = {name: [] for name in EPISODE_COLUMNS}
    collector.start()
    while collector.step_count < config.run.steps:
        for episode in collector.step(agent, rng):
            frame = episode.step * collector.pool.frames_per_step
            row = (episode.step, frame, episode.env, episode.episodic_return, episode.length, episode.terminated)
            for name, value in zip(EPISODE_COLUMNS, row, strict=True):
                episodes[name].append(float(value))
        if collector.full:
            collector.take()
            recent = episodes["episodic_return"][-WINDOW:]
            metrics["step"].append(float(collector.step_count))
            metrics["charts/episodic_return"].append(sum(recent) / len(recent) if recent else float("nan"))
            metrics["charts/coverage"].append(collector.coverage() or 0.0)
    return RunRecord(
        None, "finished", config=config, step=collector.step_count, metrics=metrics, episodes=episodes,
        visits=collector.visits.copy(), visits_step=collector.step_count,
    )  # fmt: skip
