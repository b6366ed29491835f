"""Groups that run ahead of each other, and stacks put together by the learner, against environments stepped by hand."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from conftest import same_state
from intrigue.agents.random import RandomAgent, RandomConfig
from intrigue.envs.make import make_env
from intrigue.envs.pool.config import PoolConfig
from intrigue.envs.pool.pool import make_pool
from intrigue.seeding import derive_seed
from intrigue.training.rollout_collector import Collector

STEPS = 11
SHORT = {"max_episode_steps": 4}  # three episodes end within a rollout


def collected(env_id, options, groups, *, workers=1, envs=4, steps=STEPS):
    pool = make_pool(env_id, options, PoolConfig(num_envs=envs, workers=workers, groups=groups), seed=0)
    made = Collector(pool, steps, torch.device("cpu"))
    made.start()
    return made, RandomAgent(RandomConfig(steps), pool.spaces, ("total",)), torch.Generator().manual_seed(0)


@pytest.mark.parametrize("groups", [1, 2])
def test_stacked_rollouts_are_what_each_game_showed(groups):
    made, agent, rng = collected("atari/Breakout", SHORT, groups)
    while not made.full:
        made.step(agent, rng)
    batch, extras = made.take()
    made.pool.close()
    for index in range(4):
        env = make_env("atari/Breakout", SHORT)
        obs = env.reset(derive_seed(0, "env", index))
        env.shorten_first_episode(0.0)
        for t in range(STEPS):
            np.testing.assert_array_equal(batch.obs[t, index], obs, err_msg=f"obs of {index} at {t}")
            step = env.step(batch.action[t, index].numpy())
            np.testing.assert_array_equal(batch.next_obs[t, index], step.obs, err_msg=f"successor of {index} at {t}")
            assert batch.truncated[t, index] == step.truncated == ((t + 1) % 4 == 0)
            obs = env.reset(None) if step.truncated else step.obs
        np.testing.assert_array_equal(extras["last_obs"][index], obs)
        env.close()


@pytest.fixture(scope="module")
def undisturbed():
    """The state of a collector that nobody stopped."""
    calm, agent, rng = collected("atari/Breakout", SHORT, 2)
    run(calm, agent, rng, STEPS + 5)
    state = copy.deepcopy(calm.state_dict())
    calm.pool.close()
    return state


@pytest.mark.parametrize("cut", [1, 3, 4, STEPS, STEPS + 2])
def test_what_is_in_the_air_is_saved(cut, undisturbed):
    stopped, agent, rng = collected("atari/Breakout", SHORT, 2)
    run(stopped, agent, rng, cut)
    state, draws = stopped.state_dict(), rng.get_state()
    run(stopped, agent, rng, STEPS + 5 - cut)  # saving changes nothing for whoever goes on
    resumed, agent, rng = collected("atari/Breakout", SHORT, 2, workers=2)
    resumed.load_state_dict(state)
    rng.set_state(draws)
    run(resumed, agent, rng, STEPS + 5 - cut)
    assert same_state(undisturbed, stopped.state_dict())
    assert same_state(undisturbed, resumed.state_dict())
    for made in (stopped, resumed):
        made.pool.close()


def run(made, agent, rng, steps):
    for _ in range(steps):
        if made.full:
            made.take()
        made.step(agent, rng)


def test_environments_that_cannot_be_saved_drop_what_was_in_the_air():
    made, agent, rng = collected("gym/CartPole-v1", {}, 2, workers=0)
    run(made, agent, rng, 3)
    state = made.state_dict()
    made.pool.close()
    assert len(state["landed"]) == 2
    resumed, agent, rng = collected("gym/CartPole-v1", {}, 2, workers=0)
    resumed.load_state_dict(state)
    assert resumed.pool.restarted == 4 and resumed.step_count == 12
    run(resumed, agent, rng, STEPS - 3)
    batch, _ = resumed.take()
    resumed.pool.close()
    assert (batch.truncated | batch.terminated)[2].all(), "episodes under way are cut off where the run was left"
    going_on = ~batch.ended[:-1].unsqueeze(-1)
    assert torch.equal((batch.next_obs[:-1] * going_on), (batch.obs[1:] * going_on))
