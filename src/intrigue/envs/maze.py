"""Mazes of rooms: R x R rooms of S x S cells, one-cell walls, and a spanning tree of doors drawn from a seed.

    side = R (S + 1) + 1        places = R^2 S^2 + R^2 - 1   (cells of rooms, and one door per joined pair)

A depth-first walk from the start room joins every room to the tree, so there is exactly one way between two rooms and
every free cell can be reached. Places are the free cells in row-major order.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

# Row and column change of each action, in the order right, down, left, up; the last one stays where it is.
DIRECTIONS = ((0, 1), (1, 0), (0, -1), (-1, 0))
STAY = len(DIRECTIONS)


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


def maze_of(cfg: MazeShape) -> Maze:
    """The maze a configuration describes; built once, and the same object for equal layouts."""
    return build_maze(cfg.rooms, cfg.room_size, cfg.layout_seed)


@functools.lru_cache(maxsize=8)  # One process seldom steps more than a few layouts.
def build_maze(rooms: int, room_size: int, layout_seed: int) -> Maze:
    """The maze of this size and seed, its arrays read-only."""
    walls = _carve(rooms, room_size, layout_seed)
    cells = np.argwhere(~walls).astype(np.int32)
    cell_index = np.full(walls.shape, -1, dtype=np.int32)
    cell_index[~walls] = np.arange(len(cells), dtype=np.int32)
    moves = tuple(_moves(cell_index, int(row), int(column)) for row, column in cells)
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


def _moves(cell_index: NDArray[np.int32], row: int, column: int) -> tuple[int, ...]:
    here = int(cell_index[row, column])
    ahead = [int(cell_index[row + down, column + right]) for down, right in DIRECTIONS]
    return (*(place if place >= 0 else here for place in ahead), here)
