"""Gymnasium vector environments under all three autoreset modes, with observations that tell episode and time."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from intrigue.envs.pool.config import PoolConfig
from intrigue.envs.pool.pool import make_pool
from intrigue.envs.pool.vector import DISABLED, NEXT_STEP, SAME_STEP, VectorPool, autoreset_mode
from intrigue.errors import ConfigError, EnvironmentFault

LENGTHS = (1, 2, 5)  # Episode lengths of the three environments: ends of several rows, together and apart.
MODES = list(AutoresetMode)


class Counting(gym.Env[Any, Any]):
    """Every observation is (episode, time); the reward is the action times ten plus the time. Odd episodes truncate."""

    action_space = gym.spaces.Discrete(4)
    box = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def __init__(self, length: int, form: str = "box", wrong: str = "") -> None:
        self._length, self._form, self._wrong = length, form, wrong
        forms = {"box": self.box, "dict": gym.spaces.Dict(a=self.box), "tuple": gym.spaces.Tuple((self.box, self.box))}
        self.observation_space = forms[form]
        self._episode, self._time = -1, 0

    def _obs(self) -> Any:
        now = np.array([self._episode, self._time], dtype=np.float32)
        if self._wrong == "obs" and self._time == 1:
            now[1] = np.nan
        return {"box": now, "dict": {"a": now}, "tuple": (now, now)}[self._form]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._episode, self._time = self._episode + 1, 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._time += 1
        ended = self._time == self._length
        odd = self._episode % 2 == 1
        reward = np.inf if self._wrong == "reward" else 10.0 * int(action) + self._time
        if self._wrong == "raise":
            raise OSError("the simulator went away")
        return self._obs(), reward, ended and not odd, ended and odd, {}


def counting_pool(mode: AutoresetMode, form: str = "box", wrong: str = "") -> VectorPool:
    makers = [lambda length=length: Counting(length, form, wrong) for length in LENGTHS]
    return VectorPool("gym/Counting", SyncVectorEnv(makers, autoreset_mode=mode), seed=0)


@pytest.mark.parametrize("form", ["box", "dict", "tuple"])
@pytest.mark.parametrize("mode", MODES)
def test_every_valid_row_is_one_step_of_one_episode(mode: AutoresetMode, form: str) -> None:
    pool = counting_pool(mode, form)
    obs = pool.reset()
    np.testing.assert_array_equal(obs[:, :2], np.zeros((3, 2)))
    acting = [(0.0, 0.0)] * 3  # (episode, time) each environment should act on
    rewarded = np.zeros(3, dtype=int)
    for number in range(60):
        action = np.array([number % 4, (number + 1) % 4, (number + 2) % 4])
        step = pool.step(action)
        for row, length in enumerate(LENGTHS):
            episode, time = acting[row]
            successor, following = tuple(step.next_obs[row, :2]), tuple(step.obs[row, :2])
            if time == length:
                assert mode is AutoresetMode.NEXT_STEP
                assert not step.valid[row]
                assert (step.reward[row], step.terminated[row], step.truncated[row]) == (0.0, False, False)
                acting[row] = (episode + 1, 0.0)
                assert following == acting[row]
                continue
            rewarded[row] += 1
            ended = time + 1 == length
            assert step.valid[row]
            assert successor == (episode, time + 1)
            assert step.reward[row] == 10.0 * action[row] + time + 1
            assert step.terminated[row] == (ended and episode % 2 == 0)
            assert step.truncated[row] == (ended and episode % 2 == 1)
            resets_now = ended and mode is not AutoresetMode.NEXT_STEP
            acting[row] = (episode + 1, 0.0) if resets_now else (episode, time + 1)
            assert following == acting[row]
    lost = 60 / (np.array(LENGTHS) + 1) if mode is AutoresetMode.NEXT_STEP else np.zeros(3)
    np.testing.assert_array_equal(rewarded, 60 - lost)


def test_arrays_stay_as_they_were_given() -> None:
    makers = [lambda: Counting(5)]
    pool = VectorPool("gym/Counting", SyncVectorEnv(makers, copy=False), seed=0)
    first = pool.reset()
    step = pool.step(np.array([0]))
    assert first[0, 1] == 0
    assert step.obs is not step.next_obs
    assert not np.shares_memory(step.obs, step.next_obs)


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({}, NEXT_STEP),
        ({"autoreset_mode": "no such mode"}, NEXT_STEP),
        ({"autoreset_mode": "SameStep"}, SAME_STEP),
        ({"autoreset_mode": "same_step"}, SAME_STEP),
        ({"autoreset_mode": "DISABLED"}, DISABLED),
        ({"autoreset_mode": AutoresetMode.SAME_STEP}, SAME_STEP),
        ({"autoreset_mode": AutoresetMode.DISABLED}, DISABLED),
        ({"autoreset_mode": AutoresetMode.NEXT_STEP}, NEXT_STEP),
    ],
)
def test_the_mode_is_read_as_enum_or_text(declared: dict[str, Any], expected: str) -> None:
    assert autoreset_mode(declared) == expected


class Rewritten(gym.vector.VectorWrapper[Any, Any, Any, Any, Any]):
    """Gives the final observation under another name or as one full array, as other vector environments do."""

    def __init__(self, env: Any, key: str, full: bool) -> None:
        super().__init__(env)
        self._key, self._full = key, full

    def step(self, actions: Any) -> Any:
        obs, reward, terminated, truncated, extras = self.env.step(actions)
        final = extras.pop("final_obs", None)
        if final is not None and self._key:
            rows = [np.full(2, -7, np.float32) if row is None else row for row in final]
            extras[self._key] = np.stack(rows) if self._full else final
        return obs, reward, terminated, truncated, extras


@pytest.mark.parametrize(("key", "full"), [("final_obs", True), ("final_observation", False)])
def test_other_forms_of_the_final_observation(key: str, full: bool) -> None:
    inner = SyncVectorEnv([lambda: Counting(1), lambda: Counting(3)], autoreset_mode=AutoresetMode.SAME_STEP)
    pool = VectorPool("gym/Counting", Rewritten(inner, key, full), seed=0)
    pool.reset()
    step = pool.step(np.zeros(2, dtype=np.int64))
    np.testing.assert_array_equal(step.next_obs, [[0, 1], [0, 1]])
    np.testing.assert_array_equal(step.obs, [[1, 0], [0, 1]])


def test_a_missing_final_observation_is_a_fault() -> None:
    inner = SyncVectorEnv([lambda: Counting(3), lambda: Counting(1)], autoreset_mode=AutoresetMode.SAME_STEP)
    pool = VectorPool("gym/Counting", Rewritten(inner, "", False), seed=0)
    pool.reset()
    with pytest.raises(EnvironmentFault, match=r"gym/Counting, index 1, step 1: final_obs"):
        pool.step(np.zeros(2, dtype=np.int64))


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("obs", "index 0, step 1: observation"),
        ("reward", "index 0, step 1: reward"),
        ("raise", "OSError: the simulator"),
    ],
)
def test_faults_name_the_environment(wrong: str, text: str) -> None:
    pool = counting_pool(AutoresetMode.NEXT_STEP, wrong=wrong)
    pool.reset()
    with pytest.raises(EnvironmentFault, match=text):
        pool.step(np.zeros(3, dtype=np.int64))


def test_native_vector_form_of_an_id() -> None:
    pool = make_pool("gym/CartPole-v1", {"native_vector": True}, PoolConfig(num_envs=4), seed=0)
    assert isinstance(pool, VectorPool)
    first = pool.reset()
    assert first.shape == (4, 4)
    ends, resets = 0, 0
    for _ in range(60):
        step = pool.step(np.ones(4, dtype=np.int64))
        ends += int(step.terminated.sum())
        resets += int((~step.valid).sum())
    assert ends >= 16
    assert abs(ends - resets) <= 4
    again = make_pool("gym/CartPole-v1", {"native_vector": True}, PoolConfig(num_envs=4), seed=0)
    np.testing.assert_array_equal(again.reset(), first)
    saved = pool.snapshot()
    restored = again.restore(saved)
    assert again.restarted == 4
    assert not np.array_equal(restored, first)
    pool.close()
    pool.close()


def test_an_id_without_a_vector_form_is_refused() -> None:
    with pytest.raises(ConfigError, match="vector entry point"):
        make_pool("gym/Pendulum-v1", {"native_vector": True}, PoolConfig(num_envs=2), seed=0)
    with pytest.raises(ConfigError, match="Did you mean 'CartPole-v1'"):
        make_pool("gym/CartPol-v1", {"native_vector": True}, PoolConfig(num_envs=2), seed=0)
