"""The collector: steps all environments with an agent and yields rollouts whose `next_obs` is the true successor.

It alone knows about resets, keeps the running episodes and the count of visits to every place, and holds the rollout
that is under way, so that a run can stop after any step and go on from there.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Generator, Tensor

from intrigue.agents.base import Agent
from intrigue.envs.pool import Pool
from intrigue.state import State
from intrigue.types import Episode, Extras, Transitions


class Collector:
    """Fills (T, N, ...) rollouts, one step of all environments at a time."""

    def __init__(self, pool: Pool, rollout_steps: int, device: torch.device) -> None:
        self.pool = pool
        self.rollout_steps = rollout_steps
        self.device = device
        self.step_count = 0
        self.cursor = 0
        self.visits = np.zeros(pool.places, dtype=np.int64)
        self._obs = torch.empty(0)
        self._rows: dict[str, Tensor] = {}
        self._returns = np.zeros(pool.num_envs, dtype=np.float64)
        self._lengths = np.zeros(pool.num_envs, dtype=np.int64)

    def start(self) -> None:
        """Reset all environments for a new run."""
        self._obs = self._to_device(self.pool.reset())

    @property
    def full(self) -> bool:
        """Whether a whole rollout is ready to be taken."""
        return self.cursor == self.rollout_steps

    @property
    def rollout_start(self) -> int:
        """Agent steps taken before the rollout under way began."""
        return self.step_count - self.cursor * self.pool.num_envs

    def step(self, agent: Agent, rng: Generator) -> list[Episode]:
        """Let every environment take one step; the episodes that ended with it."""
        acted = agent.act(self._obs, explore=True, rng=rng)
        now = self.pool.step(acted.action.cpu().numpy())
        row = {
            "obs": self._obs,
            "action": acted.action,
            "reward": self._to_device(now.reward.astype(np.float32)),
            "terminated": self._to_device(now.terminated),
            "truncated": self._to_device(now.truncated),
            "next_obs": self._to_device(now.next_obs),
            "valid": self._to_device(now.valid),
            **{f"extra/{name}": value for name, value in acted.extras.items()},
        }
        for name, value in row.items():
            if name not in self._rows:
                self._rows[name] = value.new_zeros((self.rollout_steps, *value.shape))
            self._rows[name][self.cursor] = value
        self._obs = self._to_device(now.obs)
        self.cursor += 1
        self.step_count += self.pool.num_envs
        if self.visits.size:
            np.add.at(self.visits, now.place[now.valid], 1)
        return self._finished(now.reward, now.terminated, now.truncated, now.valid)

    def take(self) -> tuple[Transitions, Extras]:
        """The full rollout and what the agent noted in it; the next step begins a new one."""
        assert self.full, "a rollout is taken when it is full"
        self.cursor = 0
        names = [name for name in self._rows if not name.startswith("extra/")]
        batch = Transitions(**{name: self._rows[name].clone() for name in names})
        extras = {name[6:]: rows.clone() for name, rows in self._rows.items() if name.startswith("extra/")}
        return batch, {**extras, "last_obs": self._obs}

    def coverage(self) -> float | None:
        """Share of places visited at least once, or None where places are unknown."""
        return float((self.visits > 0).mean()) if self.visits.size else None

    def state_dict(self) -> State:
        """Environments, running episodes, visits, and the rows of the rollout under way."""
        return {
            "pool": self.pool.snapshot(),
            "step_count": self.step_count,
            "cursor": self.cursor,
            "visits": self.visits.copy(),
            "obs": self._obs.clone(),
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
            "rows": {name: rows[: self.cursor].clone() for name, rows in self._rows.items()} if self.cursor else {},
        }

    def load_state_dict(self, state: State) -> None:
        """Go on from what `state_dict` gave."""
        current = self.pool.restore(state["pool"])
        self.step_count, self.cursor = int(state["step_count"]), int(state["cursor"])
        self.visits = np.array(state["visits"], dtype=np.int64)
        self._returns, self._lengths = np.array(state["returns"]), np.array(state["lengths"])
        self._obs = state["obs"].to(self.device)
        if self.pool.restarted:
            # Environments that cannot be saved begin a new episode; what was under way in them is not a transition.
            self._obs = self._to_device(current)
            self._returns[:], self._lengths[:] = 0, 0
        self._rows = {}
        for name, rows in state["rows"].items():
            self._rows[name] = rows.new_zeros((self.rollout_steps, *rows.shape[1:])).to(self.device)
            self._rows[name][: self.cursor] = rows.to(self.device)
        if self.pool.restarted and self.cursor:
            self._rows["truncated"][self.cursor - 1] |= ~self._rows["terminated"][self.cursor - 1]

    def _finished(
        self, reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, valid: np.ndarray
    ) -> list[Episode]:
        self._returns += np.where(valid, reward, 0.0)
        self._lengths += valid
        ended = np.flatnonzero((terminated | truncated) & valid)
        episodes = [
            Episode(self.step_count, int(i), float(self._returns[i]), int(self._lengths[i]), bool(terminated[i]))
            for i in ended
        ]
        self._returns[ended], self._lengths[ended] = 0.0, 0
        return episodes

    def _to_device(self, array: np.ndarray) -> Tensor:
        # The pool writes over its arrays at the next step, so a tensor of our own is needed on any device.
        return torch.tensor(array, device=self.device)
