"""A maze of rooms and doors with one far goal.

The agent starts in the top-left corner; the bottom-right corner gives reward 1 and ends the episode. Four actions
(right, down, left, up), walls block, nothing is random. Coverage is known exactly: every free cell is a place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import gymnasium as gym

from intrigue.envs.base import Env, EnvInfo, Step
from intrigue.envs.maze import DIRECTIONS, Walk, make_view, maze_of, picture
from intrigue.envs.registry import register_env
from intrigue.fields import NonNegativeInt, PositiveInt
from intrigue.spaces import Array
from intrigue.state import State

__all__ = ["Rooms", "RoomsConfig", "maze_of"]


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
    """The maze; `maze_of(cfg)` gives its layout."""

    def __init__(self, cfg: RoomsConfig, name: str = "") -> None:
        self._maze = maze_of(cfg)
        self._walk = Walk(self._maze, cfg.max_steps)
        self._view = make_view(cfg.view, self._maze)
        self.info = EnvInfo(self._view.space, gym.spaces.Discrete(len(DIRECTIONS)), places=self._maze.places)

    def reset(self, seed: int | None) -> Array:
        self._walk.reset()
        return self._view(self._walk.place)

    def step(self, action: Array) -> Step:
        reward, terminated, truncated = self._walk.move(int(action))
        place = self._walk.place
        return Step(self._view(place), reward, terminated, truncated, place)

    def stagger(self, fraction: float) -> None:
        self._walk.stagger(fraction)

    def snapshot(self) -> State:
        return self._walk.snapshot()

    def restore(self, state: State) -> None:
        self._walk.restore(state)

    def render(self) -> Array:
        return picture(self._maze, self._walk.place)
