"""Small things that must be learnt in seconds, over seeds, with stated margins."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from conftest import TINY
from intrigue.config.run import resolve
from intrigue.training.build import build
from intrigue.training.on_policy import train_on_policy


def train(**layer):
    """A run in memory; (collector, finished episodes, metrics of every update)."""
    parts = build(resolve({"threads": 1, "device": "cpu", "pool.workers": 0, **layer}))
    parts.collector.start()
    episodes, metrics = [], []
    try:
        for progress in train_on_policy(parts, warmup_steps=0):
            episodes += progress.episodes
            metrics += [progress.metrics] if progress.metrics else []
            if progress.step >= layer["steps"]:
                break
    finally:
        parts.close()
    return parts, episodes, metrics


def test_ppo_learns_a_task_from_its_reward():
    """CartPole in 30,000 steps: a random policy holds the pole for about 22 steps."""
    for seed in (0, 1):
        _, episodes, _ = train(
            env="gym/CartPole-v1",
            reward="none",
            seed=seed,
            steps=30_000,
            **{"curiosity.ext_coef": 1.0, "pool.num_envs": 8, "agent.hidden": 32, "agent.learning_rate": 1e-3},
        )
        last = np.mean([each.episodic_return for each in episodes[-30:]])
        assert last > 100, f"seed {seed}: {last:.0f}"


def test_ppo_learns_continuous_actions():
    """Pendulum in 32,000 steps: the return rises from a random policy's -1200 by far more than its spread."""
    _, episodes, _ = train(
        env="gym/Pendulum-v1",
        reward="none",
        seed=0,
        steps=32_000,
        **{
            "curiosity.ext_coef": 0.1,
            "pool.num_envs": 8,
            "agent.rollout_steps": 100,
            "agent.hidden": 32,
            "agent.learning_rate": 3e-3,
            "agent.discount": 0.9,
            "agent.epochs": 6,
            "agent.minibatches": 2,
            "agent.entropy_coef": 0.0,
        },
    )
    returns = [each.episodic_return for each in episodes]
    assert np.mean(returns[-20:]) > np.mean(returns[:20]) + 300


@pytest.mark.parametrize(
    ("steps", "layer"),
    [
        (12_000, {"reward": "nnmc", "reward.source": "knn", "reward.memory": 4096}),
        pytest.param(18_000, {"reward": "rnd"}, marks=pytest.mark.slow),
    ],
)
def test_curiosity_alone_walks_the_chain(steps, layer):
    """60 states, start at one end; a random policy sees half of them, curiosity nearly all, over three seeds."""
    common = {"env": "chain", "env.length": 60, "steps": steps, "pool.num_envs": 8, "curiosity.obs_norm": "none"}
    small = {"agent.hidden": 32, "agent.learning_rate": 1e-3, "reward.feature_dim": 16, "reward.hidden": 32}
    small["curiosity.learning_rate"] = 1e-3
    curious, aimless = [], []
    for seed in range(3):
        parts, _, _ = train(seed=seed, **common, **small, **layer)
        curious.append(parts.collector.coverage())
        parts, _, _ = train(seed=seed, agent="random", reward="none", **common)
        aimless.append(parts.collector.coverage())
    assert np.mean(curious) >= 1.8 * np.mean(aimless), (curious, aimless)


@pytest.mark.parametrize("reward", ["nnmc", "rnd"])
def test_a_bonus_fades_on_what_was_seen_and_stays_on_what_was_not(reward):
    """The same transitions again and again: their mean bonus falls below half; a state never seen scores above them."""
    options = {"reward.source": "knn", "reward.memory": 256, "reward.memory_stride": 1} if reward == "nnmc" else {}
    config = resolve({**{k: v for k, v in TINY.items() if k != "reward.blocks"}, "reward": reward, **options,
                      "curiosity.obs_norm": "none", "curiosity.learning_rate": 1e-2})  # fmt: skip
    parts = build(config)
    parts.collector.start()
    while not parts.collector.full:
        parts.collector.step(parts.agent, parts.streams["act"])
    batch, _ = parts.collector.take()
    curiosity = parts.curiosity
    scores = [float(curiosity.step_batch(batch).intrinsic.mean()) for _ in range(30)]
    assert scores[-1] < 0.5 * scores[0]
    novel = batch.replace(next_obs=torch.zeros_like(batch.next_obs).index_fill_(-1, torch.tensor([0, 1, 2]), 1.0))
    with torch.no_grad():
        assert float(curiosity.reward.score(curiosity.prepare(novel)).mean()) > 2 * scores[-1]
    parts.close()


def test_two_streams_learn_the_task_too():
    _, episodes, _ = train(
        env="gym/CartPole-v1",
        reward="rnd",
        seed=0,
        steps=30_000,
        **{
            "curiosity.ext_coef": 2.0,
            "curiosity.streams": "two",
            "curiosity.epochs": 1,
            "reward.hidden": 32,
            "reward.feature_dim": 16,
            "pool.num_envs": 8,
            "agent.hidden": 32,
            "agent.learning_rate": 1e-3,
        },
    )
    assert np.mean([each.episodic_return for each in episodes[-30:]]) > 80
