"""A maze of rooms and doors with one far goal.

The agent starts in the top-left corner; the bottom-right corner gives reward 1 and ends the episode. Four actions
(right, down, left, up), walls block, nothing is random. Coverage is known exactly: every free cell is a place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import gymnasium as gym

from intrigue.envs.base import Env, EnvInfo, Step
from intrigue.envs.maze import DIRECTIONS, MazeEpisode, draw_maze, get_maze, make_view
from intrigue.envs.registry import register_env
from intrigue.fields import NonNegativeInt, PositiveInt
from intrigue.spaces import Array
from intrigue.state import State

__all__ = ["Rooms", "RoomsConfig", "get_maze"]


@dataclass(frozen=True)
class RoomsConfig:
    """Settings of `rooms`."""

    rooms: PositiveInt = 4  # rooms per side; ours: far enough that a random walk covers little of it
    room_size: PositiveInt = 7  # cells per side of a room; ours
    layout_seed: NonNegativeInt = 1  # which doors; the same maze for every environment and every run
    max_steps: PositiveInt = 400  # ours: several times the longest way through the default maze
    view: Literal["vector", "pixels"] = "vector"  # one-hot row and column, or an 84 x 84 map


@register_env("rooms", config=RoomsConfig)
@final
class Rooms(Env):
    """The maze; `get_maze(cfg)` gives its layout."""

    def __init__(self, cfg: RoomsConfig, name: str = "") -> None:
        self._maze = get_maze(cfg)
        self._episode = MazeEpisode(self._maze, cfg.max_steps)
        self._view = make_view(cfg.view, self._maze)
        self.info = EnvInfo(self._view.space, gym.spaces.Discrete(len(DIRECTIONS)), places=self._maze.places)

    def reset(self, seed: int | None) -> Array:
        self._episode.reset()
        return self._view(self._episode.place)

    def step(self, action: Array) -> Step:
        reward, terminated, truncated = self._episode.move(int(action))
        place = self._episode.place
        return Step(self._view(place), reward, terminated, truncated, place)

    def shorten_first_episode(self, fraction: float) -> None:
        self._episode.shorten_first_episode(fraction)

    def snapshot(self) -> State:
        return self._episode.snapshot()

    def restore(self, state: State) -> None:
        self._episode.restore(state)

    def render(self) -> Array:
        return draw_maze(self._maze, self._episode.place)
