"""`atari/<Game>` as a Gymnasium environment, for your own loops: the same pictures, stickiness and scores.

env = make_gym("Breakout", protocol="rnd")
obs, info = env.reset(seed=0)
"""

from __future__ import annotations

from typing import Any, final

import gymnasium as gym
import numpy as np

from intrigue.envs.make import make_env
from intrigue.spaces import Array


@final
class AtariGym(gym.Env[Array, Any]):
    """One game under Gymnasium's contract."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012  Gymnasium's own declaration.

    def __init__(self, game: str, render_mode: str | None = None, **options: Any) -> None:
        self._env = make_env(f"atari/{game}", options)
        self.observation_space = self._env.info.obs_space
        self.action_space = self._env.info.action_space
        self.render_mode = render_mode
        self._begun = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """The first observation of a new episode; the first one without a seed draws one."""
        super().reset(seed=seed)
        if seed is None and not self._begun:
            seed = int(self.np_random.integers(2**31))
        self._begun = True
        return self._env.reset(seed).copy(), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """One step of four frames."""
        obs, reward, terminated, truncated, _ = self._env.step(np.asarray(action))
        return obs.copy(), reward, terminated, truncated, {}

    def render(self) -> Any:
        """The screen in colour."""
        return self._env.render() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Free the emulator."""
        self._env.close()


def make_gym(game: str, render_mode: str | None = None, **options: Any) -> AtariGym:
    """The game as a Gymnasium environment; `options` are the settings of `atari`."""
    return AtariGym(game, render_mode, **options)
