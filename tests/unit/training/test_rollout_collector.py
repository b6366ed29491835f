"""The collector over a scripted environment whose every observation tells episode and time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from conftest import same_state
from intrigue.agents.random import RandomAgent, RandomConfig
from intrigue.envs.pool.config import PoolConfig
from intrigue.envs.pool.pool import make_pool
from intrigue.envs.registry import ENVS
from intrigue.training.rollout_collector import Collector
from places import PLUGINS

COUNTER = PLUGINS / "counter_env.py"


@pytest.fixture(autouse=True)
def _counter_env():
    before = ENVS.extra_files()
    ENVS.add_file(COUNTER)
    yield
    ENVS._extra_files[:] = before


@pytest.fixture(autouse=True, params=[1, 2, 3], ids=lambda groups: f"groups{groups}")
def groups(request, monkeypatch):
    """Every test holds for one group and for several that run ahead of each other."""
    monkeypatch.setattr("test_rollout_collector.GROUPS", request.param)
    return request.param


GROUPS = 1


def collector(workers=0, envs=3, steps=7):
    shape = PoolConfig(num_envs=envs, workers=workers, groups=GROUPS)
    pool = make_pool("counter", {}, shape, seed=0, plugins=[COUNTER])
    made = Collector(pool, steps, torch.device("cpu"))
    made.start()
    agent = RandomAgent(RandomConfig(steps), pool.spaces, ("total",))
    return made, agent, torch.Generator().manual_seed(0)


def fill(made, agent, rng):
    episodes = []
    while not made.full:
        episodes += made.step(agent, rng)
    batch, _ = made.take()
    return batch, episodes


def test_next_obs_is_the_true_successor_also_at_an_end():
    made, agent, rng = collector()
    batch, _ = fill(made, agent, rng)
    made.pool.close()
    # Observations are (environment's episode, time); episodes last 3 steps and end by turns in both ways.
    assert torch.equal(batch.next_obs[..., 0], batch.obs[..., 0]), "next_obs crossed a reset"
    assert torch.equal(batch.next_obs[..., 1], batch.obs[..., 1] + 1)
    ended = batch.ended
    assert ended[:, 0].tolist() == [False, False, True, False, False, True, False]
    assert torch.equal(batch.obs[1:][ended[:-1]][:, 1], torch.zeros(int(ended[:-1].sum())))
    assert batch.terminated[2].all() and batch.truncated[5].all()
    assert not (batch.terminated & batch.truncated).any()


def test_rollouts_join_without_a_gap():
    made, agent, rng = collector()
    first, _ = fill(made, agent, rng)
    second, _ = fill(made, agent, rng)
    made.pool.close()
    # Seven steps: two whole episodes and one step of the third.
    assert torch.equal(second.obs[0], torch.tensor([[2.0, 1.0]] * 3))
    assert torch.equal(first.next_obs[-1], second.obs[0])


def test_episodes_are_told_with_raw_return_and_length():
    made, agent, rng = collector()
    _, episodes = fill(made, agent, rng)
    made.pool.close()
    assert [(each.env, each.length, each.terminated) for each in episodes[:3]] == [(i, 3, True) for i in range(3)]
    assert [each.episodic_return for each in episodes] == [6.0] * 6  # rewards 1 + 2 + 3
    assert [each.step for each in episodes] == [9] * 3 + [18] * 3
    assert episodes[3].terminated is False


def test_the_rollout_handed_over_is_not_written_over():
    made, agent, rng = collector()
    batch, _ = fill(made, agent, rng)
    kept = batch.obs.clone()
    fill(made, agent, rng)
    made.pool.close()
    assert torch.equal(batch.obs, kept)


def test_visits_are_counted_exactly():
    made, agent, rng = collector()
    fill(made, agent, rng)
    made.pool.close()
    # Places are the times 1, 2, 3 reached: two whole episodes and one step, in three environments.
    np.testing.assert_array_equal(made.visits, [0, 9, 6, 6])
    assert made.coverage() == 0.75


def test_environments_of_one_episode_length_do_not_end_together():
    """Sixteen mazes of 40 steps an episode: ends are spread over time from the start."""
    options = {"rooms": 2, "room_size": 3, "max_steps": 40}
    pool = make_pool("rooms", options, PoolConfig(num_envs=16, workers=0), seed=0)
    pool.reset()
    ends = [int((pool.step(np.full(16, 2)).truncated).sum()) for _ in range(80)]
    pool.close()
    assert sum(ends) == 32, "one end every 40 steps in each"
    assert max(ends) <= 4
    assert ends[:40] == ends[40:]


@pytest.mark.parametrize("cut", range(1, 13))
def test_a_rollout_can_be_left_anywhere_and_taken_up(cut):
    calm, agent, rng = collector()
    for _ in range(13):
        if calm.full:
            calm.take()
        calm.step(agent, rng)
    stopped, agent, rng = collector()
    for _ in range(cut):
        if stopped.full:
            stopped.take()
        stopped.step(agent, rng)
    state, draws = stopped.state_dict(), rng.get_state()
    stopped.pool.close()
    resumed, agent, rng = collector()
    resumed.load_state_dict(state)
    rng.set_state(draws)
    for _ in range(13 - cut):
        if resumed.full:
            resumed.take()
        resumed.step(agent, rng)
    assert same_state(calm.state_dict(), resumed.state_dict())
    calm.pool.close()
    resumed.pool.close()
