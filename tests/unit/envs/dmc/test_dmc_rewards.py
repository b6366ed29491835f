"""Rewards and starts of URLB's twelve tasks against computations of their own; dm_env's own conformance tests."""

from __future__ import annotations

import unittest
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from dm_env import test_utils

from dmc_by_hand import bell, body, expected_reward, linear, motion, reach_reward
from intrigue.envs.dmc.fast_step import import_tasks
from intrigue.envs.dmc.names import URLB_TASKS
from intrigue.envs.make import make_env

tasks = import_tasks()
WALKER, QUADRUPED, JACO = (
    [(domain, task) for task in URLB_TASKS[domain]] for domain in ("walker", "quadruped", "jaco")
)


def built(domain: str, task: str, seed: int = 0) -> Any:
    env = tasks.make_dm_env(domain, task, seed)
    env.reset()
    return env


def put(physics: Any, **values: Any) -> None:
    """The simulation at rest but for these joints: `name=position` or `name=(position, velocity)`."""
    with physics.reset_context():
        for name, value in values.items():
            place, speed = value if isinstance(value, tuple) else (value, 0.0)
            physics.named.data.qpos[name] = place
            physics.named.data.qvel[name] = speed


def test_the_computations_have_the_definitions_values() -> None:
    assert [linear(value, 1.0, 2.0, 0.0) for value in (2.0, 1.0, 0.0, -1.0, -3.0)] == [1, 1, 0.5, 0, 0]
    assert [linear(value, 5.0, 5.0, 0.5) for value in (5.0, 0.0, -5.0)] == [1, 0.5, 0]
    assert [bell(value, 0.6) for value in (-1.0, 0.0, 0.6)] == [1, 1, pytest.approx(0.1)]


@pytest.mark.parametrize(("domain", "task"), [*WALKER, *QUADRUPED, *JACO])
def test_every_step_gives_the_reward_of_the_state_it_ends_in(domain: str, task: str) -> None:
    env: Any = make_env(f"dmc/{domain}_{task}", {})
    env.reset(1)
    for action in np.random.default_rng(0).uniform(-1, 1, (40, *env.info.action_space.shape)):
        reward = env.step(action).reward
        assert reward == pytest.approx(expected_reward(domain, task, env._dm.physics), rel=1e-9, abs=1e-12)
        assert 0.0 <= reward <= 1.0


HEIGHT = 1.3  # Of the walker's torso where its root joint is at 0; the model's.


@pytest.mark.parametrize(("domain", "task"), WALKER)
def test_walkers_rewards_at_constructed_states(domain: str, task: str) -> None:
    env = built(domain, task)
    physics = env.physics
    seen = []
    for up in (0.0, -0.3, -1.2):
        for angle in (0.0, 1.0, np.pi):
            for speed, spin in ((0.0, 0.0), (0.6, 2.0), (1.0, 10.0), (5.0, -10.0), (9.0, 0.2)):
                put(physics, rootz=up, rooty=(angle, spin), rootx=(0.0, speed))
                height, upright = HEIGHT + up, (1 + np.cos(angle)) / 2
                stand = (3 * bell(1.2 - height, 0.6) + upright) / 4
                # About the root's axis everything turns as one body: its momentum is inertia times `spin`.
                _, velocity, momentum = motion(physics.model.ptr, physics.data.ptr, "torso")
                move = {
                    "stand": 1.0,
                    "walk": linear(velocity[0], 1.0, 0.5, 0.5),
                    "run": linear(velocity[0], 8.0, 4.0, 0.5),
                    "flip": linear(momentum[1], 5.0, 5.0, 0.0),
                }[task]
                assert env.task.get_reward(physics) == pytest.approx(stand * (5 * move + 1) / 6, abs=1e-12)
                seen.append(round(move, 6))
    assert task == "stand" or {0.0, 1.0} < set(seen), "no bound was met, or nothing between"


def test_walkers_at_rest_upright_and_upside_down() -> None:
    """Numbers by hand: full height and upright is 1; upside down on the ground, and not moving, next to nothing."""
    for task, upright in (("stand", 1.0), ("walk", 1 / 6), ("run", 1 / 6), ("flip", 1 / 6)):
        env = built("walker", task)
        put(env.physics)
        assert env.task.get_reward(env.physics) == pytest.approx(upright)
        put(env.physics, rootz=0.6 - HEIGHT, rooty=np.pi)
        assert env.task.get_reward(env.physics) == pytest.approx(upright * 3 * 0.1 / 4)


def test_flip_rewards_spinning_forwards_only() -> None:
    env = built("walker", "flip")
    rewards = []
    for spin in (-8.0, 0.0, 8.0):
        put(env.physics, rooty=(0.0, spin))
        momentum = motion(env.physics.model.ptr, env.physics.data.ptr, "torso")[2]
        assert np.sign(momentum[1]) == np.sign(spin) and abs(momentum[0]) + abs(momentum[2]) < 1e-9
        rewards.append(env.task.get_reward(env.physics))
    assert rewards == [pytest.approx(1 / 6), pytest.approx(1 / 6), pytest.approx(1.0)]


@pytest.mark.parametrize(("domain", "task"), QUADRUPED)
def test_quadrupeds_rewards_at_constructed_states(domain: str, task: str) -> None:
    env = built(domain, task)
    physics = env.physics
    at_rest = None
    for height in (3.0, 0.57, 0.3):
        for angle in (0.0, 1.0, np.pi):
            for speed in (-6.0, 0.0, 0.3, 0.5, 4.0, 6.0):
                # Turned about the x axis, which leaves x velocities what they are.
                turned = [0.0, 0.0, height, np.cos(angle / 2), np.sin(angle / 2), 0.0, 0.0]
                put(physics, root=(turned, [speed, 0, 0, 0, 0, 0]))
                upright = (1 + np.cos(angle)) / 2
                center = motion(physics.model.ptr, physics.data.ptr, "torso")[0][2]
                if at_rest is None:
                    at_rest = center - height  # How far below the torso's own place; turned by the angle.
                assert center == pytest.approx(height + at_rest * np.cos(angle), abs=1e-3)
                expected = {
                    "stand": upright,
                    "walk": upright * linear(speed, 0.5, 0.5, 0.5),
                    "run": upright * linear(speed, 5.0, 5.0, 0.5),
                    "jump": upright * linear(center, 1.0, 1.0, 0.5),
                }[task]
                assert env.task.get_reward(physics) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("domain", "task"), JACO)
def test_reaching_rewards_the_distance_to_the_brick_at_its_corner(domain: str, task: str) -> None:
    env = built(domain, task)
    x = -0.09 if task.endswith("left") else 0.09
    y = 0.09 if "top" in task else -0.09
    turns = []
    for seed in range(4):
        env.random_state.seed(seed)
        env.reset()
        place = env.physics.data.ptr.xpos[body(env.physics.model.ptr, "duplo2x4/")]
        np.testing.assert_allclose(place, [x, y, 0.0], atol=2e-3)
        tool = env.physics.bind(env.task.hand.tool_center_point).xpos
        assert (np.abs(tool[:2]) <= 0.1 + 1e-3).all() and 0.2 - 1e-3 <= tool[2] <= 0.4 + 1e-3
        down = env.physics.bind(env.task.hand.tool_center_point).xmat.reshape(3, 3)[:, 2]
        np.testing.assert_allclose(down, [0, 0, -1], atol=1e-2)
        turns.append(env.physics.named.data.xmat["duplo2x4/", "xx"])
    assert len(set(turns)) == len(turns), "the brick is turned at random"
    for distance in (0.0, 0.03, 0.05, 0.06, 0.1, 0.15):
        with env.physics.reset_context():
            tool = env.physics.bind(env.task.hand.tool_center_point).xpos.copy()
            env.physics.named.data.qpos["duplo2x4/"][:3] = tool + np.array([0.0, 0.0, distance])
        expected = 0.1 ** (max(0.0, (distance - 0.05) / 0.05) ** 2)
        assert env.task.get_reward(env.physics) == pytest.approx(expected)
        assert reach_reward(env.physics.model.ptr, env.physics.data.ptr) == pytest.approx(expected)


def test_quadrupeds_begin_in_any_orientation_and_touch_nothing() -> None:
    for task in ("walk", "stand", "jump"):
        env = built("quadruped", task)
        turned = []
        for _ in range(14):
            env.reset()
            assert env.physics.data.ncon == 0
            turned.append(float(env.physics.torso_upright()))
        assert min(turned) < 0 < max(turned)
        assert env.physics.named.model.geom_size["floor", 0] == 10.0  # 20 s at 0.5 m/s


def test_the_arm_in_one_call_gives_what_dm_controls_own_loop_gives() -> None:
    from dm_control import composer

    from intrigue.envs.dmc.reach import make_reach, make_reach_task

    ours = make_reach("reach_bottom_left", 4, time_limit=1.0)
    theirs = composer.Environment(
        make_reach_task("reach_bottom_left"), time_limit=1.0, random_state=4, recompile_mjcf_every_episode=False
    )
    rng, bounds = np.random.default_rng(0), ours.action_spec()
    got, expected = ours.reset(), theirs.reset()
    for _ in range(60):  # Two episodes of 25 steps, their resets, and some.
        assert list(got.observation) == list(expected.observation)
        for name, part in got.observation.items():
            np.testing.assert_array_equal(part, expected.observation[name])
        assert got[:3] == expected[:3]
        action = rng.uniform(bounds.minimum, bounds.maximum)
        got, expected = ours.step(action), theirs.step(action)


def test_compiling_the_arm_anew_would_give_the_same_model() -> None:
    from dm_control import composer

    from intrigue.envs.dmc.reach import make_reach_task

    env = composer.Environment(make_reach_task("reach_top_left"), random_state=0)
    env.reset()
    first = model_arrays(env)
    env.reset()
    again = model_arrays(env)
    assert all(np.array_equal(first[name], again[name]) for name in first) and len(first) > 200


def model_arrays(env: Any) -> dict[str, Any]:
    model = env.physics.model.ptr
    values = {name: getattr(model, name) for name in dir(model) if not name.startswith("_")}
    return {name: value.copy() for name, value in values.items() if isinstance(value, np.ndarray)}


class Conforms(test_utils.EnvironmentTestMixin):
    """dm_env's tests of an environment, through several episodes of a second."""

    domain: str
    task: str

    def make_object_under_test(self) -> Any:
        if self.domain == "jaco":
            return tasks.make_reach(self.task, 0, time_limit=1.0)
        return tasks.OUR_OWN[self.domain, self.task](random=0, time_limit=1.0)

    def make_action_sequence(self) -> Iterator[Any]:
        bounds, rng = self.environment.action_spec(), np.random.default_rng(0)
        for _ in range(110):
            yield rng.uniform(bounds.minimum, bounds.maximum)


class TestFlipConforms(Conforms, unittest.TestCase):
    domain, task = "walker", "flip"


class TestStandConforms(Conforms, unittest.TestCase):
    domain, task = "quadruped", "stand"


class TestJumpConforms(Conforms, unittest.TestCase):
    domain, task = "quadruped", "jump"


class TestEscapeConforms(Conforms, unittest.TestCase):
    domain, task = "quadruped", "escape"


class TestReachConforms(Conforms, unittest.TestCase):
    domain, task = "jaco", "reach_bottom_right"
