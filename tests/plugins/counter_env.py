"""An environment that tells episode and time in every observation: a frame across a reset or an off-by-one shows."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from intrigue.envs import Env, EnvInfo, Step, register_env
from intrigue.registry import EmptyConfig

LENGTH = 3


@register_env("counter")
class Counter(Env):
    """Three steps an episode, ending by turns in termination and truncation; reward is the time reached."""

    def __init__(self, cfg: EmptyConfig, name: str) -> None:
        self.info = EnvInfo(
            obs_space=gym.spaces.Box(0, np.inf, (2,), np.float32),
            action_space=gym.spaces.Discrete(2),
            places=LENGTH + 1,
        )
        self.episode, self.time = -1, 0

    def _obs(self):
        return np.array([self.episode, self.time], dtype=np.float32)

    def reset(self, seed):
        self.episode, self.time = (0 if seed is not None else self.episode + 1), 0
        return self._obs()

    def step(self, action):
        self.time += 1
        over = self.time == LENGTH
        even = self.episode % 2 == 0
        return Step(self._obs(), float(self.time), over and even, over and not even, self.time)

    def snapshot(self):
        return {"episode": self.episode, "time": self.time}

    def restore(self, state):
        self.episode, self.time = state["episode"], state["time"]
