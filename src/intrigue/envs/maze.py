"""Mazes of rooms: R x R rooms of S x S cells, one-cell walls, and a spanning tree of doors drawn from a seed.

    side = R (S + 1) + 1        places = R^2 S^2 + R^2 - 1   (cells of rooms, and one door per joined pair)

A depth-first walk from the start room joins every room to the tree, so there is exactly one way between two rooms and
every free cell can be reached. Places are the free cells in row-major order.

`MazeEpisode` is one agent in a maze: reaching the goal gives reward 1 and terminates; the time limit truncates, but not
on the step that reaches the goal. The agent sees a vector (`VectorView`) or 84 x 84 pixels (`PixelView`); `draw_maze`
is a picture for people.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass
from typing import Protocol, final

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from intrigue.errors import ConfigError
from intrigue.state import State

# Row and column change of each action: right, down, left, up. A fifth action, STAY, changes nothing.
DIRECTIONS = ((0, 1), (1, 0), (0, -1), (-1, 0))
STAY = len(DIRECTIONS)

PIXELS = 84  # Side of the image; the Nature trunk's input size.
# Greys far enough apart that one 8-bit step of noise cannot confuse them.
WALL_GREY, FLOOR_GREY, GOAL_GREY, AGENT_GREY = 0, 80, 160, 255

# Picture colors: dark walls, light floor, green goal, red agent.
WALL_COLOR, FLOOR_COLOR, GOAL_COLOR, AGENT_COLOR = (38, 44, 58), (236, 238, 242), (46, 160, 97), (214, 69, 65)
PICTURE_SIDE = 480  # Pixels a picture aims at; small mazes get large cells.
MIN_CELL_PIXELS = 8


class MazeShape(Protocol):
    """The part of a configuration that decides a maze's layout."""

    @property
    def rooms(self) -> int:
        """Rooms per side."""

    @property
    def room_size(self) -> int:
        """Cells per side of a room."""

    @property
    def layout_seed(self) -> int:
        """Seed of the doors."""


@dataclass(frozen=True, eq=False)
class Maze:
    """A layout and what follows from it. Positions are (row, column)."""

    walls: NDArray[np.bool_]  # (side, side)
    cell_index: NDArray[np.int32]  # (side, side) place of a free cell, -1 for a wall
    cells: NDArray[np.int32]  # (places, 2) position of each place
    moves: tuple[tuple[int, ...], ...]  # place after each action, STAY included
    start: tuple[int, int]
    goal: tuple[int, int]

    @property
    def side(self) -> int:
        """Cells per side, outer walls included."""
        return len(self.walls)

    @property
    def places(self) -> int:
        """Number of free cells."""
        return len(self.cells)

    def place_at(self, position: tuple[int, int]) -> int:
        """The place at a position."""
        return int(self.cell_index[position])


def get_maze(cfg: MazeShape) -> Maze:
    """The maze a configuration describes; built once, and the same object for equal layouts."""
    return build_maze(cfg.rooms, cfg.room_size, cfg.layout_seed)


@functools.lru_cache(maxsize=8)  # A process rarely steps more than a few layouts.
def build_maze(rooms: int, room_size: int, layout_seed: int) -> Maze:
    """The maze of this size and seed, its arrays read-only."""
    walls = _carve(rooms, room_size, layout_seed)
    cells = np.argwhere(~walls).astype(np.int32)
    cell_index = np.full(walls.shape, -1, dtype=np.int32)
    cell_index[~walls] = np.arange(len(cells), dtype=np.int32)
    moves = tuple(_successors(cell_index, int(row), int(column)) for row, column in cells)
    for array in (walls, cells, cell_index):
        array.setflags(write=False)
    last = len(walls) - 2
    return Maze(walls, cell_index, cells, moves, start=(1, 1), goal=(last, last))


def _carve(rooms: int, room_size: int, layout_seed: int) -> NDArray[np.bool_]:
    pitch = room_size + 1
    walls = np.zeros((rooms * pitch + 1, rooms * pitch + 1), dtype=bool)
    walls[::pitch] = True
    walls[:, ::pitch] = True
    # Only `random()` is promised to give the same numbers in every Python version, so every draw goes through it.
    draw = random.Random(layout_seed).random
    joined = {(0, 0)}
    trail = [(0, 0)]
    while trail:
        row, column = trail[-1]
        around = [(row + down, column + right, down, right) for down, right in DIRECTIONS]
        fresh = [each for each in around if 0 <= min(each[:2]) <= max(each[:2]) < rooms and each[:2] not in joined]
        if not fresh:
            trail.pop()
            continue
        next_row, next_column, down, right = fresh[int(draw() * len(fresh))]
        offset = 1 + int(draw() * room_size)
        door_row = max(row, next_row) * pitch if down else row * pitch + offset
        door_column = max(column, next_column) * pitch if right else column * pitch + offset
        walls[door_row, door_column] = False
        joined.add((next_row, next_column))
        trail.append((next_row, next_column))
    return walls


def _successors(cell_index: NDArray[np.int32], row: int, column: int) -> tuple[int, ...]:
    here = int(cell_index[row, column])
    ahead = [int(cell_index[row + down, column + right]) for down, right in DIRECTIONS]
    return (*(place if place >= 0 else here for place in ahead), here)


@final
class VectorView:
    """One-hot row, then one-hot column, float32."""

    def __init__(self, maze: Maze) -> None:
        side = maze.side
        table = np.zeros((maze.places, 2 * side), dtype=np.float32)
        every = np.arange(maze.places)
        table[every, maze.cells[:, 0]] = 1.0
        table[every, side + maze.cells[:, 1]] = 1.0
        # Observations are rows of one table, returned without a copy, so they are read-only.
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


def draw_maze(maze: Maze, place: int) -> NDArray[np.uint8]:
    """A picture of the maze for people, (height, width, 3), at least 8 pixels a cell."""
    colors = np.array([FLOOR_COLOR, WALL_COLOR], dtype=np.uint8)[maze.walls.astype(np.intp)]
    colors[maze.goal] = GOAL_COLOR
    cell = max(MIN_CELL_PIXELS, PICTURE_SIDE // maze.side)
    image: NDArray[np.uint8] = colors.repeat(cell, axis=0).repeat(cell, axis=1)
    middle = (np.arange(cell) - (cell - 1) / 2) ** 2
    disc = middle[:, None] + middle[None, :] <= (0.42 * cell) ** 2  # A disc that leaves a rim of its cell.
    row, column = maze.cells[place] * cell
    image[row : row + cell, column : column + cell][disc] = AGENT_COLOR
    return image


@final
class MazeEpisode:
    """Place and time of one agent in one maze."""

    def __init__(self, maze: Maze, max_steps: int) -> None:
        self._moves = maze.moves
        self._start = maze.place_at(maze.start)
        self._goal = maze.place_at(maze.goal)
        self._max_steps = max_steps
        self.place = self._start
        self.time = 0

    def reset(self) -> None:
        """Back to the start cell."""
        self.place = self._start
        self.time = 0

    def shorten_first_episode(self, fraction: float) -> None:
        """Begin as if this fraction of the time limit had passed."""
        self.time = int(fraction * self._max_steps)

    def move(self, action: int) -> tuple[float, bool, bool]:
        """Reward, terminated and truncated of one step; a wall leaves the agent where it is."""
        self.time += 1
        self.place = self._moves[self.place][action]
        if self.place == self._goal:
            return 1.0, True, False
        return 0.0, False, self.time >= self._max_steps

    def snapshot(self) -> State:
        """Place and time."""
        return {"place": self.place, "time": self.time}

    def restore(self, state: State) -> None:
        """Restore a snapshot."""
        self.place, self.time = state["place"], state["time"]
