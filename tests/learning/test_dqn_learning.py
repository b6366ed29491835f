"""DQN learns small tasks from their reward in seconds, and explores further with a bonus than without."""

from __future__ import annotations

import numpy as np
import pytest

from intrigue.config.run import resolve
from intrigue.training.build import build
from intrigue.training.loops import loop

SMALL = {
    "threads": 1,
    "device": "cpu",
    "pool.workers": 0,
    "pool.num_envs": 4,
    "agent": "dqn",
    "agent.capacity": 20_000,
    "agent.batch": 64,
    "agent.learning_starts": 400,
    "agent.learning_rate": 1e-3,
    "agent.target_every": 200,
    "agent.epsilon_end": 0.05,
    "agent.hidden": 32,
}


def train(**layer):
    """A run in memory: the collector and the finished episodes."""
    parts = build(resolve({**SMALL, **layer}))
    parts.collector.start()
    episodes = []
    try:
        for progress in loop(parts, warmup_steps=0):
            episodes += progress.episodes
            if progress.step >= layer["steps"]:
                return parts.collector, episodes
    finally:
        parts.close()


# Three steps and priorities learn in half the time, from smaller batches.
FASTER = {"agent.n_step": 3, "agent.priority": 0.6, "agent.epsilon_steps": 1800, "agent.learning_starts": 200}
FASTER |= {"agent.batch": 32, "agent.target_every": 100}


@pytest.mark.parametrize(("steps", "changes"), [pytest.param(6000, {}, marks=pytest.mark.slow), (2800, FASTER)])
def test_dqn_solves_a_chain_from_its_reward(steps, changes):
    """Eight states to the right: a policy that knows walks there every time, a random one hardly ever in time.

    The first weights of seed 1 walk left; those of seed 0 happen to walk right, and would pass without learning.
    """
    _, episodes = train(
        env="chain", reward="none", steps=steps, seed=1,
        **{"env.length": 8, "curiosity.ext_coef": 1.0, "agent.epsilon_steps": 3000, **changes},
    )  # fmt: skip
    first, last = episodes[:30], episodes[-30:]
    assert np.mean([each.terminated for each in last]) > 0.9
    assert np.mean([each.length for each in last]) < 9
    assert np.mean([each.terminated for each in first]) < 0.6


def test_curiosity_leads_dqn_further_than_chance():
    """A chain of 40 states and no reward but the bonus, two seeds; without it DQN wanders as its ε does."""
    common = {"env": "chain", "env.length": 40, "steps": 2400, "agent.epsilon_steps": 800, "agent.n_step": 3}
    common |= {"agent.learning_starts": 200, "agent.batch": 32}
    bonus = {
        "reward": "nnmc",
        "reward.source": "knn",
        "reward.memory": 512,
        "reward.memory_stride": 8,
        "reward.feature_dim": 16,
        "reward.hidden": 32,
        "curiosity.obs_norm": "none",
    }
    curious, aimless = [], []
    for seed in range(2):
        curious.append(train(seed=seed, **common, **bonus)[0].coverage())
        aimless.append(train(seed=seed, reward="none", **common)[0].coverage())
    assert np.mean(curious) > 1.5 * np.mean(aimless), (curious, aimless)
