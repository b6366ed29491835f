"""One update per `train_every` agent steps, however many environments take those steps at once."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intrigue.config.run import resolve
from intrigue.replay.plan import ReplayPlan, updates_due
from intrigue.training.build import build
from intrigue.training.off_policy import ReplayParts, train_off_policy


def plan_of(train_every: int, learning_starts: int) -> ReplayPlan:
    return ReplayPlan(1, 1, learning_starts, train_every, discount=0.9)


@given(
    num_envs=st.integers(1, 70),
    train_every=st.integers(1, 70),
    learning_starts=st.integers(0, 300),
    rounds=st.integers(1, 60),
)
def test_updates_are_those_of_one_environment_at_every_step(num_envs, train_every, learning_starts, rounds):
    """An update falls due with every step whose number is a multiple of `train_every` beyond the random ones."""
    plan = plan_of(train_every, learning_starts)
    done = 0
    for step in range(num_envs, num_envs * rounds + 1, num_envs):
        due = updates_due(step, num_envs, plan)
        learning = range(max(step - num_envs, learning_starts) + 1, step + 1)
        assert due == sum(number % train_every == 0 for number in learning)
        done += due
        alone = sum(updates_due(number, 1, plan) for number in range(1, step + 1))
        assert done == alone, "several environments are never behind one, nor ahead of it"


@given(num_envs=st.integers(1, 16), factor=st.integers(1, 8), learning_starts=st.integers(0, 100))
def test_where_the_steps_divide_every_step_brings_the_same_number(num_envs, factor, learning_starts):
    """8 environments and an update every 2 steps: 4 after each step of all, from the first whole one on."""
    plan = plan_of(num_envs, learning_starts)
    many = [updates_due(step, factor * num_envs, plan) for step in range(factor * num_envs, 2_000, factor * num_envs)]
    settled = [due for index, due in enumerate(many) if index * factor * num_envs >= learning_starts]
    assert set(settled) == {factor}


@pytest.mark.parametrize(
    ("num_envs", "train_every", "learning_starts", "rounds"), [(1, 2, 450, 500), (4, 3, 900, 250), (8, 2, 100, 210)]
)
def test_a_run_keeps_the_ratio(num_envs, train_every, learning_starts, rounds, monkeypatch):
    """Counted in the loop itself: DDPG on episodes of 200 steps, which all environments finish at the same time.

    Before the first have ended there is nothing to draw, so updates due until then are not made: 8 environments need
    1,600 steps for it, whatever `learning_starts` says.
    """
    layer = {
        "env": "gym/Pendulum-v1", "agent": "ddpg", "agent.hidden": 4, "agent.batch": 4, "agent.capacity": 8_000,
        "agent.train_every": train_every, "agent.learning_starts": learning_starts, "reward": "none",
        "curiosity.ext_coef": 1.0, "pool.num_envs": num_envs, "pool.workers": 0, "device": "cpu",
    }  # fmt: skip
    parts = build(resolve(layer))
    assert isinstance(parts, ReplayParts)
    calls: list[int] = []
    update = parts.agent.update

    def counted(*args, **kwargs):
        calls.append(kwargs["step"])
        return update(*args, **kwargs)

    monkeypatch.setattr(parts.agent, "update", counted)
    try:
        parts.collector.start()
        for _ in itertools.islice(train_off_policy(parts, 0), rounds):
            pass
    finally:
        parts.close()
    first_episodes, end = 200 * num_envs, rounds * num_envs
    # The step with which the first episodes end is the first whose updates can be made.
    begin = max(learning_starts, first_episodes - num_envs)
    wanted = [number for number in range(begin + 1, end + 1) if number % train_every == 0]
    assert calls == [-(-number // num_envs) * num_envs for number in wanted], "each at the step it fell due with"
    assert len(calls) > 20
