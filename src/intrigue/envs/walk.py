"""A walk through a maze: where the agent is, how long the episode has lasted, and when it ends.

Reaching the goal gives reward 1 and terminates; the time limit truncates, but not on the step that reaches the goal.
"""

from __future__ import annotations

from typing import final

from intrigue.envs.maze import Maze
from intrigue.state import State


@final
class Walk:
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

    def stagger(self, fraction: float) -> None:
        """Begin as if this share of the time limit had passed."""
        self.time = int(fraction * self._max_steps)

    def move(self, action: int) -> tuple[float, bool, bool]:
        """Reward, terminated and truncated of one step; a wall leaves the agent where it is."""
        self.time += 1
        self.place = self._moves[self.place][action]
        if self.place == self._goal:
            return 1.0, True, False
        return 0.0, False, self.time >= self._max_steps

    def snapshot(self) -> State:
        """Where the walk stands."""
        return {"place": self.place, "time": self.time}

    def restore(self, state: State) -> None:
        """Put the walk back to a snapshot."""
        self.place, self.time = state["place"], state["time"]
