"""Steps all environments with an agent and hands what happens to the replay.

As the collector of rollouts it keeps the running episodes and the count of visits; the observations to act on are read
from the replay, where they are already.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Generator, Tensor

from intrigue.agents.base import Agent
from intrigue.envs.pool import Pool
from intrigue.replay.memory import Replay
from intrigue.skills import SkillCourse
from intrigue.spaces import Array
from intrigue.state import State
from intrigue.types import Episode


class ReplayCollector:
    """One step of all environments at a time, into a replay."""

    def __init__(self, pool: Pool, replay: Replay, skills: SkillCourse) -> None:
        self.pool, self.replay, self.skills = pool, replay, skills
        self.step_count = 0
        self.visits = np.zeros(pool.places, dtype=np.int64)
        self._returns = np.zeros(pool.num_envs, dtype=np.float64)
        self._lengths = np.zeros(pool.num_envs, dtype=np.int64)

    def start(self) -> None:
        """Reset all environments for a new run."""
        self.replay.begin(self.pool.reset())
        self.skills.start()

    def step(self, agent: Agent, rng: Generator) -> tuple[list[Episode], Tensor]:
        """Let every environment take one step; the episodes that ended with it, and the actions."""
        skill = self.skills.current
        acted = agent.act(self.replay.current(), skill, explore=True, rng=rng)
        action = acted.action.cpu().numpy()
        now = self.pool.step(action)
        self.replay.add(
            action=action,
            skill=skill,
            reward=now.reward,
            terminated=now.terminated,
            truncated=now.truncated,
            valid=now.valid,
            reached=now.next_obs,
            frames=now.obs,
        )
        self.skills.advance(torch.from_numpy(now.terminated | now.truncated), torch.from_numpy(now.valid.copy()))
        self.step_count += self.pool.num_envs
        if self.visits.size:
            np.add.at(self.visits, now.place[now.valid], 1)
        return self._finished(now.reward, now.terminated, now.truncated, now.valid), acted.action

    def coverage(self) -> float | None:
        """Share of places visited at least once, or None where places are unknown."""
        return float((self.visits > 0).mean()) if self.visits.size else None

    def state_dict(self) -> State:
        """Environments, running episodes, visits, skills, and the replay."""
        return {
            "pool": self.pool.snapshot(),
            "step_count": self.step_count,
            "visits": self.visits.copy(),
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
            "skills": self.skills.state_dict(),
            "replay": self.replay.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Go on from what `state_dict` gave."""
        current = self.pool.restore(state["pool"])
        self.step_count = int(state["step_count"])
        self.visits = np.array(state["visits"], dtype=np.int64)
        self._returns, self._lengths = np.array(state["returns"]), np.array(state["lengths"])
        self.skills.load_state_dict(state["skills"])
        self.replay.load_state_dict(state["replay"])
        if self.pool.restarted:
            # Environments that cannot be saved begin a new episode; what was under way in them is cut off here.
            self._returns[:], self._lengths[:] = 0, 0
            self.skills.start()
            self.replay.cut(current)

    def _finished(self, reward: Array, terminated: Array, truncated: Array, valid: Array) -> list[Episode]:
        self._returns += np.where(valid, reward, 0.0)
        self._lengths += valid
        ended = np.flatnonzero((terminated | truncated) & valid)
        episodes = [
            Episode(self.step_count, int(i), float(self._returns[i]), int(self._lengths[i]), bool(terminated[i]))
            for i in ended
        ]
        self._returns[ended], self._lengths[ended] = 0.0, 0
        return episodes
