"""A chain of states with a small reward at the near end and a large one at the far end.

Two actions, left and right, from state 0. Pressing left in state 0 gives 0.001; reaching the last state gives 1 and
ends the episode. A policy that follows the small reward never sees the large one, and a random one almost never gets
there in time: only exploration that persists does (Osband et al. 2016, arXiv:1602.04621, section 5.1).

Differs from the paper: the start is the first state, and the far end terminates, so that an episode has one success.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, final

import gymnasium as gym
import numpy as np

from intrigue.envs.base import Env, EnvInfo, Step
from intrigue.envs.registry import register_env
from intrigue.fields import Limits, NonNegativeInt
from intrigue.spaces import Array
from intrigue.state import State

NEAR_REWARD = 0.001  # Osband et al. 2016, figure 3.
FAR_REWARD = 1.0  # Osband et al. 2016, figure 3.
SLACK_STEPS = 9  # Osband et al. 2016: episodes of length + 9 steps, which forgives at most five steps back.


@dataclass(frozen=True)
class ChainConfig:
    """Settings of `chain`."""

    length: Annotated[int, Limits(low=2)] = 50  # states; Osband et al. 2016 sweep up to 100
    max_steps: NonNegativeInt = 0  # 0: length + 9, as Osband et al. 2016


@register_env("chain", config=ChainConfig)
@final
class Chain(Env):
    """The chain; each state is a place."""

    def __init__(self, cfg: ChainConfig, name: str = "") -> None:
        self._last = cfg.length - 1
        self._max_steps = cfg.max_steps or cfg.length + SLACK_STEPS
        table = np.eye(cfg.length, dtype=np.float32)
        # Observations are rows of one table, returned without a copy, so they are read-only.
        table.setflags(write=False)
        self._rows = list(table)
        self._place = 0
        self._time = 0
        box = gym.spaces.Box(0.0, 1.0, (cfg.length,), np.float32)
        self.info = EnvInfo(box, gym.spaces.Discrete(2), places=cfg.length)

    def reset(self, seed: int | None) -> Array:
        self._place = 0
        self._time = 0
        return self._rows[0]

    def step(self, action: Array) -> Step:
        self._time += 1
        reward = NEAR_REWARD if self._place == 0 and action == 0 else 0.0
        self._place = self._place + 1 if action == 1 else max(self._place - 1, 0)
        terminated = self._place == self._last
        if terminated:
            reward = FAR_REWARD
        truncated = not terminated and self._time >= self._max_steps
        return Step(self._rows[self._place], reward, terminated, truncated, self._place)

    def snapshot(self) -> State:
        return {"place": self._place, "time": self._time}

    def restore(self, state: State) -> None:
        self._place, self._time = state["place"], state["time"]

    def render(self) -> Array:
        cell = 16  # Pixels: large enough to see.
        row = np.full((len(self._rows), 3), 220, dtype=np.uint8)
        row[-1] = (46, 160, 97)
        row[self._place] = (214, 69, 65)
        image: Array = row.repeat(cell, axis=0)[None].repeat(cell, axis=0)
        return image
