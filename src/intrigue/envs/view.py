"""How a maze looks to the agent (a vector or 84 x 84 pixels) and to a person (a picture)."""

from __future__ import annotations

from typing import final

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from intrigue.envs.maze import Maze
from intrigue.errors import ConfigError

PIXELS = 84  # Side of the image; the Nature trunk's input size.
# Greys far enough apart that one 8-bit step of noise cannot confuse them.
WALL_GREY, FLOOR_GREY, GOAL_GREY, AGENT_GREY = 0, 80, 160, 255

# Picture colors: dark walls, light floor, green goal, red agent.
WALL_COLOR, FLOOR_COLOR, GOAL_COLOR, AGENT_COLOR = (38, 44, 58), (236, 238, 242), (46, 160, 97), (214, 69, 65)
PICTURE_SIDE = 480  # Pixels a picture aims at; small mazes get large cells.
MIN_CELL_PIXELS = 8


@final
class VectorView:
    """One-hot row, then one-hot column, float32."""

    def __init__(self, maze: Maze) -> None:
        side = maze.side
        table = np.zeros((maze.places, 2 * side), dtype=np.float32)
        every = np.arange(maze.places)
        table[every, maze.cells[:, 0]] = 1.0
        table[every, side + maze.cells[:, 1]] = 1.0
        # Observations are rows of one table, handed out without a copy, so nobody may write to them.
        table.setflags(write=False)
        self._rows = list(table)
        self.space = gym.spaces.Box(0.0, 1.0, (2 * side,), np.float32)

    def __call__(self, place: int) -> NDArray[np.float32]:
        """What the agent sees in a place."""
        return self._rows[place]


@final
class PixelView:
    """The whole map in greys, (1, 84, 84) uint8, cells as large as fit; `band` rows at the bottom stay black."""

    def __init__(self, maze: Maze, band: int = 0) -> None:
        height = PIXELS - band
        self._cell = height // maze.side
        if self._cell == 0:
            raise ConfigError(
                f"view: a maze of {maze.side} x {maze.side} cells does not fit into {height} pixels. Accepted: "
                f'rooms * (room_size + 1) + 1 <= {height}. Use fewer or smaller rooms, or view="vector".'
            )
        greys = np.where(maze.walls, WALL_GREY, FLOOR_GREY).astype(np.uint8)
        greys[maze.goal] = GOAL_GREY
        drawn = np.kron(greys, np.ones((self._cell, self._cell), dtype=np.uint8))
        top, left = (height - len(drawn)) // 2, (PIXELS - len(drawn)) // 2
        self._empty = np.zeros((1, PIXELS, PIXELS), dtype=np.uint8)
        self._empty[0, top : top + len(drawn), left : left + len(drawn)] = drawn
        corners = maze.cells * self._cell + (top, left)
        self._corners: list[tuple[int, int]] = [(int(row), int(column)) for row, column in corners]
        self.space = gym.spaces.Box(0, 255, (1, PIXELS, PIXELS), np.uint8)

    def __call__(self, place: int) -> NDArray[np.uint8]:
        """What the agent sees in a place, a new array."""
        row, column = self._corners[place]
        image: NDArray[np.uint8] = self._empty.copy()
        image[0, row : row + self._cell, column : column + self._cell] = AGENT_GREY
        return image


def make_view(kind: str, maze: Maze) -> VectorView | PixelView:
    """The agent's view of this kind."""
    return VectorView(maze) if kind == "vector" else PixelView(maze)


def picture(maze: Maze, place: int) -> NDArray[np.uint8]:
    """The maze for a person, (height, width, 3), at least 8 pixels a cell."""
    colors = np.array([FLOOR_COLOR, WALL_COLOR], dtype=np.uint8)[maze.walls.astype(np.intp)]
    colors[maze.goal] = GOAL_COLOR
    cell = max(MIN_CELL_PIXELS, PICTURE_SIDE // maze.side)
    image: NDArray[np.uint8] = colors.repeat(cell, axis=0).repeat(cell, axis=1)
    middle = (np.arange(cell) - (cell - 1) / 2) ** 2
    disc = middle[:, None] + middle[None, :] <= (0.42 * cell) ** 2  # A disc that leaves a rim of its cell.
    row, column = maze.cells[place] * cell
    image[row : row + cell, column : column + cell][disc] = AGENT_COLOR
    return image
