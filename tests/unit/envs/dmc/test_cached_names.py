"""Names that are looked up once: the same numbers as dm_control's own lookups, and no second lookup."""

from __future__ import annotations

import numpy as np
import pytest

from intrigue.envs.dmc.fast_step import cache_name_lookups, import_tasks
from intrigue.envs.make import make_env

make_dm_env = import_tasks().make_dm_env  # without OpenGL, whose libraries crash a Triton that is imported after them

TASKS = [
    ("walker", "run"),
    ("quadruped", "jump"),
    ("manipulator", "bring_ball"),
    ("humanoid", "walk"),
    ("lqr", "lqr_2_1"),
]


@pytest.mark.parametrize(("domain", "task"), TASKS)
def test_the_same_episode(domain, task):
    stock, ours = (make_dm_env(domain, task, seed=3) for _ in range(2))
    cache_name_lookups(ours.physics)
    stock.reset()
    ours.reset()
    bounds = stock.action_spec()
    draws = np.random.default_rng(0)
    for _ in range(20):
        action = draws.uniform(np.maximum(bounds.minimum, -1), np.minimum(bounds.maximum, 1))
        one, other = stock.step(action), ours.step(action)
        assert one.reward == other.reward
        for name, seen in one.observation.items():
            np.testing.assert_array_equal(other.observation[name], seen)


def test_every_way_of_asking():
    physics, ours = (make_dm_env("walker", "run", seed=0).physics for _ in range(2))
    cache_name_lookups(ours)
    for key in ("torso", ["torso", "left_foot"], 1, slice(1, None), [1, 2], np.array([2, 1])):
        for columns in ("zz", ["xx", "xz"], 0, slice(None)):
            for _ in range(2):
                np.testing.assert_array_equal(ours.named.data.xmat[key, columns], physics.named.data.xmat[key, columns])
    assert ours.named.data.xmat._axes.row.names == physics.named.data.xmat._axes.row.names
    with pytest.raises(KeyError):
        ours.named.data.xmat["nobody"]
    with pytest.raises(IndexError):
        ours.named.data.xmat[None]


def test_what_is_written_by_name_is_written():
    physics = make_dm_env("walker", "run", seed=0).physics
    cache_name_lookups(physics)
    for height in (0.5, 0.7):
        physics.named.data.qpos["rootz"] = height
        assert physics.named.data.qpos["rootz"] == height == physics.data.qpos[0]


def test_names_are_looked_up_once(monkeypatch):
    physics = make_dm_env("walker", "run", seed=0).physics
    cache_name_lookups(physics)
    asked = []
    axis = physics.named.data.xmat._axes.col
    monkeypatch.setattr(axis, "_axis", _Asked(axis._axis, asked))
    for _ in range(3):
        physics.named.data.xmat["torso", ["xx", "xz"]]
        physics.named.data.xmat["torso", "zz"]
    assert asked == [["xx", "xz"], "zz"]


class _Asked:
    def __init__(self, axis, asked):
        self.axis, self.asked = axis, asked

    def convert_key_item(self, item):
        self.asked.append(item)
        return self.axis.convert_key_item(item)


def test_without_a_reward_none_is_computed():
    env, rewarded = (make_env(name, {}) for name in ("dmc/walker", "dmc/walker_stand"))
    seen = [each.reset(0) for each in (env, rewarded)]
    np.testing.assert_array_equal(*seen)
    steps = [each.step(np.zeros(6, np.float32)) for each in (env, rewarded)]
    np.testing.assert_array_equal(steps[0].obs, steps[1].obs)
    assert steps[0].reward == 0 < steps[1].reward
