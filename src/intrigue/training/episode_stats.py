"""The episodes under way in every environment, in raw reward, and how often each place was visited."""

from __future__ import annotations

from typing import final

import numpy as np

from intrigue.envs.pool.pool import PoolStep
from intrigue.state import State
from intrigue.types import Episode


@final
class RunningEpisodes:
    """Returns and lengths so far of N environments' episodes, and visits to `places` places (0: unknown)."""

    def __init__(self, num_envs: int, places: int) -> None:
        self.visits = np.zeros(places, dtype=np.int64)
        self._returns = np.zeros(num_envs, dtype=np.float64)
        self._lengths = np.zeros(num_envs, dtype=np.int64)

    def note(self, step_count: int, rows: slice, step: PoolStep) -> list[Episode]:
        """Count one step of these environments; the episodes that ended with it, at agent step `step_count`."""
        returns, lengths = self._returns[rows], self._lengths[rows]  # views
        returns += np.where(step.valid, step.reward, 0.0)
        lengths += step.valid
        if self.visits.size:
            np.add.at(self.visits, step.place[step.valid], 1)
        over = (step.terminated | step.truncated) & step.valid
        if not over.any():
            return []
        ended = np.flatnonzero(over)
        episodes = [
            Episode(step_count, rows.start + int(i), float(returns[i]), int(lengths[i]), bool(step.terminated[i]))
            for i in ended
        ]
        returns[ended], lengths[ended] = 0.0, 0
        return episodes

    def cut(self) -> None:
        """Every environment is reset; unfinished episodes are dropped."""
        self._returns[:], self._lengths[:] = 0.0, 0

    def coverage(self) -> float | None:
        """Share of places visited at least once, or None where places are unknown."""
        return float((self.visits > 0).mean()) if self.visits.size else None

    def state_dict(self) -> State:
        """All counts."""
        return {"visits": self.visits.copy(), "returns": self._returns.copy(), "lengths": self._lengths.copy()}

    def load_state_dict(self, state: State) -> None:
        """Put back what `state_dict` gave."""
        self.visits = np.array(state["visits"], dtype=np.int64)
        self._returns, self._lengths = np.array(state["returns"]), np.array(state["lengths"])
