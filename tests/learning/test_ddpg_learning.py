"""DDPG learns a small task from its reward in seconds."""

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
    "pool.num_envs": 1,
    "agent": "ddpg",
    "agent.capacity": 20_000,
    "agent.batch": 64,
    "agent.learning_starts": 400,
    "agent.learning_rate": 1e-3,
    "agent.hidden": 32,
    "curiosity.scale": "none",
    "curiosity.obs_norm": "none",
}


def train(**layer):
    """The finished episodes of a run in memory."""
    parts = build(resolve({**SMALL, **layer}))
    parts.collector.start()
    episodes = []
    try:
        for progress in loop(parts, 0):
            episodes += progress.episodes
            if progress.step >= layer["steps"]:
                break
        return episodes
    finally:
        parts.close()


@pytest.mark.parametrize("products", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_ddpg_learns_to_balance_a_pole(products):
    """Fifty steps of four frames each, one point for every frame upright: chance gets about 20 of 200."""
    episodes = train(
        env="dmc/cartpole_balance_sparse", reward="none", steps=1800,
        **{"env.action_repeat": 4, "env.max_episode_steps": 50, "curiosity.ext_coef": 1.0, "agent.n_step": 3},
        **{"run.products": products},
    )  # fmt: skip
    returns = [each.episodic_return for each in episodes]
    assert np.mean(returns[:8]) < 60
    assert np.mean(returns[-8:]) > 130, returns
