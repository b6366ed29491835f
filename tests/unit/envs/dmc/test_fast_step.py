"""Fast steps and flat observations: to the bit what dm_control gives, warnings and divergence included."""

from __future__ import annotations

import numpy as np
import pytest

from intrigue.envs.dmc.fast_step import import_tasks
from intrigue.envs.make import make_env

tasks = import_tasks()  # without OpenGL, whose libraries crash a Triton that is imported after them

from intrigue.envs.dmc.fast_step import Flattener, _FastStep, use_fast_step  # noqa: E402  # after dm_control's own import

TASKS = [
    ("walker", "run"),
    ("quadruped", "jump"),
    ("humanoid", "walk"),  # two-dimensional parts of an observation are flattened row by row
    ("manipulator", "bring_ball"),
    ("cartpole", "swingup"),  # Runge-Kutta
    ("jaco", "reach_top_left"),
    ("lqr", "lqr_2_1"),
]


@pytest.mark.parametrize(("domain", "task"), TASKS)
def test_an_episode_of_ours_is_dm_controls(domain, task):
    env = make_env(f"dmc/{domain}_{task}", {})
    first = env.reset(3)
    stock = tasks.make_dm_env(domain, task, seed=0 if domain == "jaco" else 3)
    if domain == "jaco":
        stock.reset()  # compiles its model, as building ours does
        stock.random_state.seed(3)
    bounds = stock.action_spec()
    np.testing.assert_array_equal(first, _joined(stock.reset()))
    draws = np.random.default_rng(0)
    for _ in range(30):
        action = draws.uniform(-1.2, 1.2, bounds.shape).astype(np.float32)
        low, high = np.maximum(bounds.minimum, -1e9), np.minimum(bounds.maximum, 1e9)
        low, high = np.where(low == -1e9, -1.0, low), np.where(high == 1e9, 1.0, high)
        share = (np.clip(action, -1.0, 1.0).astype(np.float64) + 1.0) / 2.0
        theirs = stock.step(np.minimum(low + share * (high - low), high))
        ours = env.step(action)
        assert ours.reward == theirs.reward
        np.testing.assert_array_equal(ours.obs, _joined(theirs))
        assert ours.obs.dtype == np.float32
    env.close()


@pytest.mark.parametrize("name", ["dmc/walker", "dmc/quadruped", "dmc/jaco", "dmc/lqr_lqr_2_1"])
def test_what_trains_is_quick(name):
    env = make_env(name, {})
    for seed in (0, 1):
        env.reset(seed)
        assert isinstance(env._dm._physics, _FastStep)
        assert "_CachedAxis" in type(env._dm.physics.named.data.qpos._axes.row).__name__
    env.close()


def test_quick_once_is_enough():
    physics = tasks.make_dm_env("walker", "run", seed=0).physics
    use_fast_step(physics)
    kind = type(physics)
    use_fast_step(physics)
    assert type(physics) is kind
    assert kind.__mro__.count(_FastStep) == 1


@pytest.mark.filterwarnings("ignore:The 'warn' function is deprecated")  # dm_control's, when it logs a warning
@pytest.mark.parametrize("substeps", [1, 10])
def test_warnings_are_dm_controls(substeps):
    said = []
    for quick in (False, True):
        physics = tasks.make_dm_env("walker", "run", seed=0).physics
        if quick:
            use_fast_step(physics)
        physics.data.qvel[:] = 1e12
        with pytest.raises(tasks.control.PhysicsError) as caught:
            physics.step(substeps)
        said.append(str(caught.value))
        with physics.reset_context():
            pass
        physics.step(substeps)  # what has been said is not said again
        physics.data.qvel[:] = 1e12
        with physics.suppress_physics_errors():
            physics.step(substeps)
    assert said[0] == said[1]
    assert "mjWARN" in said[0]


def test_parts_lie_one_after_the_other():
    observation = {"some": np.array([1.0, 2.0]), "one": np.float64(3.0), "none": np.zeros(0), "plain": 4.0}
    flat = Flattener(observation)
    assert flat.size == 4
    found = flat(observation)
    np.testing.assert_array_equal(found, np.array([1, 2, 3, 4], np.float32))
    assert flat(observation) is not found, "whoever keeps one keeps it"


def test_parts_of_two_dimensions_row_by_row():
    observation = {"rows": np.arange(6.0).reshape(2, 3), "more": np.array(6.0)}
    np.testing.assert_array_equal(Flattener(observation)(observation), np.arange(7, dtype=np.float32))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_seen_wherever_it_stands(wrong):
    flat = Flattener({"all": np.zeros(19)})
    assert flat.is_finite(np.full(19, np.finfo(np.float32).max, np.float32)), "large is finite"
    for place in range(19):
        values = np.ones(19, np.float32)
        values[place] = wrong
        assert not flat.is_finite(values)


def _joined(given):
    return np.concatenate([np.ravel(part) for part in given.observation.values()]).astype(np.float32)
