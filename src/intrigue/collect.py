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
from intrigue.skills import SkillCourse
from intrigue.spaces import Spaces
from intrigue.state import State
from intrigue.types import Episode, Extras, Transitions


class Collector:
    """Fills (T, N, ...) rollouts, one step of all environments at a time."""

    def __init__(self, pool: Pool, rollout_steps: int, device: torch.device, skills: SkillCourse | None = None) -> None:
        self.pool = pool
        self.skills = skills or SkillCourse(None, pool.num_envs, Generator(device))
        self.rollout_steps = rollout_steps
        self.device = device
        self.step_count = 0
        self.cursor = 0
        self.visits = np.zeros(pool.places, dtype=np.int64)
        self._obs = np.zeros((pool.num_envs, *pool.spaces.obs.shape), pool.spaces.obs.dtype)
        self._rows = empty_rows(rollout_steps, pool.num_envs, pool.spaces)
        self._followed: list[Tensor] = []
        self._noted: list[Extras] = []
        self._returns = np.zeros(pool.num_envs, dtype=np.float64)
        self._lengths = np.zeros(pool.num_envs, dtype=np.int64)

    def start(self) -> None:
        """Reset all environments for a new run."""
        self._obs[...] = self._first(self.pool.reset())
        self.skills.start()

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
        acted = agent.act(self._to_device(self._obs), self.skills.current, explore=True, rng=rng)
        action = acted.action.cpu().numpy()
        now = self.pool.step(action)
        rows, t = self._rows, self.cursor
        rows["obs"][t], rows["action"][t], rows["reward"][t] = self._obs, action, now.reward
        rows["terminated"][t], rows["truncated"][t] = now.terminated, now.truncated
        ended = now.terminated | now.truncated
        rows["next_obs"][t], rows["valid"][t] = self._successor(now.next_obs), now.valid
        self._noted.append(acted.extras)
        self._followed.append(self.skills.current)
        self.skills.advance(torch.from_numpy(ended), torch.from_numpy(now.valid.copy()))
        if self.pool.stack:
            self._obs[...] = rows["next_obs"][t]
            self._obs[ended] = self._first(now.obs)[ended]
        else:
            self._obs[...] = now.obs
        self.cursor += 1
        self.step_count += self.pool.num_envs
        if self.visits.size:
            np.add.at(self.visits, now.place[now.valid], 1)
        return self._finished(now.reward, now.terminated, now.truncated, now.valid)

    def take(self) -> tuple[Transitions, Extras]:
        """The full rollout and what the agent noted in it; the next step begins a new one."""
        assert self.full, "a rollout is taken when it is full"
        rows = {name: self._to_device(rows) for name, rows in self._rows.items()}
        batch = Transitions(**rows, skill=torch.stack(self._followed))
        last = {"last_obs": self._to_device(self._obs), "last_skill": self.skills.current}
        extras = {**stacked(self._noted), **last}
        self.cursor, self._noted, self._followed = 0, [], []
        return batch, extras

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
            "obs": self._obs.copy(),
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
            "rows": {name: rows[: self.cursor].copy() for name, rows in self._rows.items()} if self.cursor else {},
            "noted": dict(stacked(self._noted)),
            "skills": self.skills.state_dict(),
            "followed": torch.stack(self._followed) if self._followed else torch.zeros(0),
        }

    def load_state_dict(self, state: State) -> None:
        """Go on from what `state_dict` gave."""
        current = self.pool.restore(state["pool"])
        self.step_count, self.cursor = int(state["step_count"]), int(state["cursor"])
        self.visits = np.array(state["visits"], dtype=np.int64)
        self._returns, self._lengths = np.array(state["returns"]), np.array(state["lengths"])
        self._obs[...] = self._first(current) if self.pool.restarted else state["obs"]
        for name, rows in state["rows"].items():
            self._rows[name][: self.cursor] = rows
        noted = {name: values.to(self.device) for name, values in state["noted"].items()}
        self._noted = [{name: values[t] for name, values in noted.items()} for t in range(self.cursor)]
        self.skills.load_state_dict(state["skills"])
        self._followed = list(state["followed"].to(self.device))
        if self.pool.restarted:
            # Environments that cannot be saved begin a new episode; what was under way in them is cut off here.
            self._returns[:], self._lengths[:] = 0, 0
            self.skills.start()
            if self.cursor:
                last = self.cursor - 1
                self._rows["truncated"][last] |= ~self._rows["terminated"][last]

    def _first(self, frame: np.ndarray) -> np.ndarray:
        """Observations of episodes that begin: k copies of one frame where observations are stacks of k."""
        return np.repeat(frame[:, None], self.pool.stack, axis=1) if self.pool.stack else frame

    def _successor(self, frame: np.ndarray) -> np.ndarray:
        """The observations after the current ones, of which the pool gives the newest frame alone."""
        return np.concatenate([self._obs[:, 1:], frame[:, None]], axis=1) if self.pool.stack else frame

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
        # The arrays are written over at the next step, so a tensor of our own is needed on any device.
        return torch.tensor(array, device=self.device)


def empty_rows(time: int, envs: int, spaces: Spaces) -> dict[str, np.ndarray]:
    """Room for one rollout on the host; it goes to the device as a whole."""
    lead = (time, envs)
    obs, action = spaces.obs, spaces.action
    return {
        "obs": np.zeros((*lead, *obs.shape), obs.dtype),
        "action": np.zeros((*lead, *action.shape), action.dtype),
        "reward": np.zeros(lead, np.float32),
        "terminated": np.zeros(lead, bool),
        "truncated": np.zeros(lead, bool),
        "next_obs": np.zeros((*lead, *obs.shape), obs.dtype),
        "valid": np.ones(lead, bool),
    }


def stacked(noted: list[Extras]) -> Extras:
    """What an agent noted step by step, as (T, N, ...) tensors."""
    return {name: torch.stack([each[name] for each in noted]) for name in noted[0]} if noted else {}
