"""Steps all environments with an agent and hands what happens to the replay.

The observations to act on are read from the replay, where they are already.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from intrigue.agents.base import Agent
from intrigue.envs.pool.pool import Pool
from intrigue.replay.buffer import ReplayBuffer
from intrigue.replay.prefill import prefill_replay
from intrigue.replay.recording import Recordings
from intrigue.replay.step_store import VectorStep
from intrigue.skills import SkillSampler
from intrigue.spaces import Array
from intrigue.state import State
from intrigue.training.episode_stats import RunningEpisodes
from intrigue.types import Episode


class ReplayCollector:
    """One step of all environments at a time, into a replay."""

    def __init__(self, pool: Pool, replay: ReplayBuffer, skills: SkillSampler) -> None:
        self.pool, self.replay, self.skills = pool, replay, skills
        self.step_count = 0
        self.episodes = RunningEpisodes(pool.num_envs, pool.places)
        self.before: Recordings | None = None
        """Episodes that the replay holds before the first step."""

    def start(self) -> None:
        """Reset all environments for a new run."""
        frames = self.pool.reset()
        if self.before is None:
            self.replay.reset(frames)
        else:
            prefill_replay(self.replay, self.before, frames)
        self.skills.start()

    @property
    def visits(self) -> Array:
        """How often each place was entered; empty where places are unknown."""
        return self.episodes.visits

    def step(self, agent: Agent, rng: Generator) -> tuple[list[Episode], Tensor]:
        """Let every environment take one step; the episodes that ended with it, and the actions."""
        skill = self.skills.current
        acted = agent.act(self.replay.current_obs(), skill, explore=True, rng=rng)
        action = acted.action.cpu().numpy()
        now = self.pool.step(action)
        taken = VectorStep(
            action,
            skill,
            now.reward,
            now.terminated,
            now.truncated,
            now.valid,
            next_frames=now.next_obs,
            frames=now.obs,
        )
        self.replay.add(taken)
        self.skills.advance(torch.from_numpy(now.terminated | now.truncated), torch.from_numpy(now.valid.copy()))
        self.step_count += self.pool.num_envs
        return self.episodes.note(self.step_count, slice(0, self.pool.num_envs), now), acted.action

    def coverage(self) -> float | None:
        """Share of places visited at least once, or None where places are unknown."""
        return self.episodes.coverage()

    def state_dict(self) -> State:
        """Environments, running episodes, visits, skills, and the replay."""
        return {
            "pool": self.pool.snapshot(),
            "step_count": self.step_count,
            **self.episodes.state_dict(),
            "skills": self.skills.state_dict(),
            "replay": self.replay.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Go on from what `state_dict` gave."""
        current = self.pool.restore(state["pool"])
        self.step_count = int(state["step_count"])
        self.episodes.load_state_dict(state)
        self.skills.load_state_dict(state["skills"])
        self.replay.load_state_dict(state["replay"])
        if self.pool.restarted:
            # Environments that cannot be saved begin a new episode; what was under way in them is cut off here.
            self.episodes.cut()
            self.skills.start()
            self.replay.truncate(current)
