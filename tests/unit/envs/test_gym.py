"""`gym/<id>`: names, spaces, warnings, pictures and environments that break their own declaration."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from intrigue.envs.gym import check_name
from intrigue.envs.make import make_env
from intrigue.envs.pool.config import PoolConfig
from intrigue.envs.pool.pool import make_pool
from intrigue.errors import ConfigError, EnvironmentFault
from intrigue.spaces import make_spaces

BOX = gym.spaces.Box(-10.0, 10.0, (3,), np.float32)


class Scripted(gym.Env[Any, Any]):
    """Gives what the test puts into `given`."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    given: Any = None
    taken: Any = None

    def __init__(self, obs_space: Any, action_space: Any, first: Any, render_mode: str | None = None) -> None:
        self.observation_space, self.action_space, self._first = obs_space, action_space, first
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        warnings.warn("this package is old", DeprecationWarning, stacklevel=1)
        return self._first, {}

    def step(self, action: Any) -> Any:
        warnings.warn("this package is old", DeprecationWarning, stacklevel=1)
        type(self).taken = action
        return type(self).given

    def render(self) -> Any:
        return np.full((40, 50, 3), 9, dtype=np.uint8)


def register(name: str, obs_space: Any, action_space: Any, first: Any) -> str:
    arguments = {"obs_space": obs_space, "action_space": action_space, "first": first}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gym.register(id=f"intrigue-test/{name}-v0", entry_point=Scripted, kwargs=arguments)
    return f"gym/intrigue-test/{name}-v0"


def test_known_names_pass_and_unknown_ones_name_the_nearest() -> None:
    for name in ("CartPole-v1", "CartPole", "phys2d/CartPole-v1", "gymnasium:CartPole-v1"):
        assert check_name(name) == []
    assert "Did you mean 'CartPole-v1'" in check_name("CartPoole-v1")[0]
    assert "Did you mean 'CartPole-v1'" in check_name("cartpole-v1")[0]
    assert "no_such_module" in check_name("no_such_module:Id-v0")[0]
    assert "no_such_module" in check_name("no_such_module.deep:Id-v0")[0]
    assert "no id given" in check_name("")[0]


@pytest.mark.parametrize("env_id", ["gym/CartPoole-v1", "gym", "gym/no_such_module:X-v0", "rooms/3", "gim/CartPole-v1"])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_wrong_id_is_a_config_error(env_id: str, workers: int) -> None:
    with pytest.raises(ConfigError):
        make_pool(env_id, {}, PoolConfig(num_envs=1, workers=workers), seed=0)


def test_a_module_that_lacks_the_id_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="Gymnasium refuses"):
        make_env("gym/gymnasium:NoSuchThing-v0", {})


def test_a_module_beside_the_script_is_found_in_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "gymnasium.register('OwnPole-v0', entry_point=CartPoleEnv, max_episode_steps=5)\n"
    )
    (tmp_path / "own_pole_module.py").write_text(source)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    pool = make_pool("gym/own_pole_module:OwnPole-v0", {}, PoolConfig(num_envs=2, workers=1), seed=0)
    pool.reset()
    flags = [pool.step(np.array([step % 2] * 2)).truncated.copy() for step in range(5)]
    pool.close()
    np.testing.assert_array_equal(flags, [[False, False]] * 4 + [[True, True]])


def test_the_episode_limit_can_be_set() -> None:
    env = make_env("gym/Pendulum-v1", {"max_episode_steps": 3})
    env.reset(0)
    assert [env.step(np.zeros(1, np.float32)).truncated for _ in range(3)] == [False, False, True]


def test_dict_observations_are_flattened_and_text_left_out() -> None:
    space = gym.spaces.Dict(
        direction=gym.spaces.Discrete(3),
        image=gym.spaces.Box(0, 255, (2, 2), np.uint8),
        mission=gym.spaces.Text(10),
        switches=gym.spaces.MultiBinary(2),
    )
    first = {
        "direction": 1,
        "image": np.array([[1, 2], [3, 4]], np.uint8),
        "mission": "go",
        "switches": np.array([0, 1], np.int8),
    }
    env = make_env(register("dict", space, gym.spaces.Discrete(2), first), {})
    np.testing.assert_array_equal(env.reset(0), [0, 1, 0, 1, 2, 3, 4, 0, 1])


def test_actions_arrive_as_the_environment_takes_them() -> None:
    for number, (space, encoded, expected) in enumerate(
        [
            (gym.spaces.Discrete(3, start=5), np.int64(2), 7),
            (gym.spaces.MultiDiscrete([2, 3]), np.array([1, 2]), [1, 2]),
            (gym.spaces.MultiBinary(3), np.array([1, 0, 1]), [1, 0, 1]),
            (gym.spaces.Box(-1.0, 1.0, (2,), np.float32), np.array([0.5, 9.0], np.float32), [0.5, 1.0]),
        ]
    ):
        env = make_env(register(f"action{number}", BOX, space, np.zeros(3, np.float32)), {})
        env.reset(0)
        Scripted.given = (np.zeros(3, np.float32), 0.0, False, False, {})
        env.step(encoded)
        np.testing.assert_array_equal(Scripted.taken, expected)
        assert space.contains(Scripted.taken)


FINE = np.zeros(3, np.float32)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ((np.zeros(4, np.float32), 0.0, False, False, {}), "observation"),
        ((np.zeros((3, 1), np.float32), 0.0, False, False, {}), "observation"),
        ((np.zeros(3, complex), 0.0, False, False, {}), "observation"),
        ((np.array(["a", "b", "c"]), 0.0, False, False, {}), "observation"),
        ((np.array([0, np.nan, 0], np.float32), 0.0, False, False, {}), "observation"),
        ((np.array([0, 1e300, 0]), 0.0, False, False, {}), "observation"),
        ((None, 0.0, False, False, {}), "observation"),
        ((FINE, np.nan, False, False, {}), "reward"),
        ((FINE, -np.inf, False, False, {}), "reward"),
        ((FINE, None, False, False, {}), "reward"),
        ((FINE, "1", False, False, {}), "reward"),
        ((FINE, 1j, False, False, {}), "reward"),
        ((FINE, np.zeros(2), False, False, {}), "reward"),
        ((FINE, 0.0, 1, False, {}), "terminated"),
        ((FINE, 0.0, None, False, {}), "terminated"),
        ((FINE, 0.0, False, "no", {}), "truncated"),
        ((FINE, 0.0, False, {}), "step"),
        (FINE, "step"),
    ],
)
def test_a_broken_declaration_is_a_fault_with_the_field(given: Any, field: str) -> None:
    env_id = register("broken", BOX, gym.spaces.Discrete(2), FINE)
    pool = make_pool(env_id, {}, PoolConfig(num_envs=2, workers=0), seed=0)
    pool.reset()
    Scripted.given = (FINE, 0.0, False, False, {})
    pool.step(np.zeros(2, np.int64))
    Scripted.given = given
    with pytest.raises(EnvironmentFault, match=rf"broken-v0, index 0, step 2: {field}: expected"):
        pool.step(np.zeros(2, np.int64))


def test_harmless_variants_pass() -> None:
    env_id = register("lenient", BOX, gym.spaces.Discrete(2), [0.0, 0.0, 0.0])
    pool = make_pool(env_id, {}, PoolConfig(num_envs=1, workers=0), seed=0)
    pool.reset()
    for obs in (np.zeros(3), [1, 2, 3], np.array([1, 2, 3])):
        for reward in (1, np.float32(1), np.array(1.0), True):
            Scripted.given = (obs, reward, np.bool_(False), np.array(False), {})
            step = pool.step(np.zeros(1, np.int64))
            assert step.reward[0] == 1.0
            np.testing.assert_array_equal(step.next_obs[0], np.asarray(obs, np.float32))


def test_a_wrong_first_observation_is_a_fault() -> None:
    env_id = register("first", BOX, gym.spaces.Discrete(2), np.zeros(2, np.float32))
    pool = make_pool(env_id, {}, PoolConfig(num_envs=1, workers=0), seed=0)
    with pytest.raises(EnvironmentFault, match="in reset before its first step: observation"):
        pool.reset()


def test_unsupported_spaces_are_config_errors() -> None:
    endless = register("endless", gym.spaces.Sequence(BOX), gym.spaces.Discrete(2), (FINE,))
    with pytest.raises(ConfigError, match="observation space"):
        make_env(endless, {})
    whole = register("whole", BOX, gym.spaces.Box(0, 3, (1,), np.int64), FINE)
    with pytest.raises(ConfigError, match="action space"):
        make_env(whole, {})


def test_pictures_only_when_asked() -> None:
    env_id = register("picture", BOX, gym.spaces.Discrete(2), FINE)
    assert make_env(env_id, {}).render() is None
    drawing = make_env(env_id, {}, render=True)
    drawing.reset(0)
    picture = drawing.render()
    assert picture is not None
    assert picture.shape == (40, 50, 3)
    assert make_env("rooms", {}, render=True).render() is not None


def test_images_come_channels_first() -> None:
    space = gym.spaces.Box(0, 255, (40, 50, 3), np.uint8)
    first = np.zeros((40, 50, 3), np.uint8)
    first[..., 2] = 7
    env = make_env(register("image", space, gym.spaces.Discrete(2), first), {})
    assert make_spaces(env.info.obs_space, env.info.action_space).obs.shape == (3, 40, 50)
    pool = make_pool("gym/intrigue-test/image-v0", {}, PoolConfig(num_envs=2, workers=0), seed=0)
    np.testing.assert_array_equal(pool.reset()[:, 2], np.full((2, 40, 50), 7))
