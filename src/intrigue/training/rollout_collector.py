"""The collector: steps all environments with an agent and yields rollouts whose `next_obs` is the true successor.

It alone knows about resets and holds the rollout that is under way, so that a run can stop after any step and go on
from there. With several groups of environments one group steps while the agent acts for another:

    step t      land A(t) · act, launch A(t+1) · land B(t) · act, launch B(t+1)

so between two steps of one rollout the next one is in the air. Before a state is saved it is brought down and kept;
nothing is in the air where a rollout ends, because the next action needs the agent to have learned.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from intrigue.agents.base import Agent
from intrigue.envs.pool.pool import Pool, PoolStep
from intrigue.skills import SkillSampler
from intrigue.spaces import Array
from intrigue.state import State
from intrigue.training.episode_stats import RunningEpisodes
from intrigue.training.rollout_buffer import ObservationBuffer, RolloutBuffer
from intrigue.types import Episode, Extras, Transitions


class Collector:
    """Fills (T, N, ...) rollouts, one step of all environments at a time."""

    def __init__(
        self, pool: Pool, rollout_steps: int, device: torch.device, skills: SkillSampler | None = None
    ) -> None:
        self.pool = pool
        self.skills = skills or SkillSampler(None, pool.num_envs, Generator(device))
        self.rollout_steps = rollout_steps
        self.device = device
        self.step_count = 0
        self.cursor = 0
        self.episodes = RunningEpisodes(pool.num_envs, pool.places)
        self._observations = ObservationBuffer(pool, device)
        self._buffer = self._new_rows()
        # Skills are drawn for all environments at once, after all have stepped: no group may run ahead of the others.
        self._runs_ahead = len(pool.groups) > 1 and self.skills.spec is None
        self._pending = False
        self._received_early: list[PoolStep] = []

    def start(self) -> None:
        """Reset all environments for a new run."""
        self._observations.reset(self.pool.reset())
        self.skills.start()

    @property
    def visits(self) -> Array:
        """How often each place was entered; empty where places are unknown."""
        return self.episodes.visits

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
        pool = self.pool
        if not self._pending:
            for group in range(len(pool.groups)):
                self._launch(group, self.cursor, agent, rng)
        ahead = self._runs_ahead and self.cursor + 1 < self.rollout_steps
        landed, self._received_early = self._received_early, []
        steps, episodes = [], []
        for group, rows in enumerate(pool.groups):
            step = landed[group] if landed else pool.receive(group)
            self._buffer.write_outcome(self.cursor, rows, self._observations.update(rows, step), step)
            episodes += self.episodes.note(self.step_count + pool.num_envs, rows, step)
            if self.skills.spec is not None:
                ended = torch.from_numpy(step.terminated | step.truncated)
                steps.append((ended, torch.from_numpy(step.valid.copy())))
            if ahead:
                self._launch(group, self.cursor + 1, agent, rng)
        if steps:
            self.skills.advance(*(torch.cat(each) for each in zip(*steps, strict=True)))
        self._pending = ahead
        self.cursor += 1
        self.step_count += pool.num_envs
        return episodes

    def take(self) -> tuple[Transitions, Extras]:
        """The full rollout and what the agent noted in it; the next step begins a new one."""
        assert self.full, "a rollout is taken when it is full"
        batch, noted = self._buffer.batch()
        self._buffer = self._new_rows()
        self.cursor = 0
        return batch, {**noted, "last_obs": self.current(), "last_skill": self.skills.current}

    @property
    def observations(self) -> Tensor:
        """What the environments have shown in the rollout under way, (T, N, *obs); so far, that of `cursor` steps."""
        return self._buffer.obs

    def current(self) -> Tensor:
        """What the environments show now, (N, *obs)."""
        return self._observations.now.clone()

    def coverage(self) -> float | None:
        """Share of places visited at least once, or None where places are unknown."""
        return self.episodes.coverage()

    def state_dict(self) -> State:
        """Environments, running episodes, visits, and the rows of the rollout under way."""
        if self._pending and not self._received_early:
            received = (self.pool.receive(group) for group in range(len(self.pool.groups)))
            self._received_early = [PoolStep(*(array.copy() for array in step)) for step in received]
        return {
            "pool": self.pool.snapshot(),
            "step_count": self.step_count,
            "cursor": self.cursor,
            **self.episodes.state_dict(),
            "obs": self._observations.now.clone(),
            "rows": self._buffer.state_dict(self.cursor + self._pending),
            "landed": [step._asdict() for step in self._received_early],
            "skills": self.skills.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Go on from what `state_dict` gave."""
        first = self.pool.restore(state["pool"])
        self.step_count, self.cursor = int(state["step_count"]), int(state["cursor"])
        self.episodes.load_state_dict(state)
        self._buffer = self._new_rows()
        self._buffer.load_state_dict(state["rows"])
        self.skills.load_state_dict(state["skills"])
        self._received_early = [PoolStep(**step) for step in state["landed"]]
        self._pending = bool(self._received_early)
        if not self.pool.restarted:
            self._observations.restore(state["obs"])
            return
        # Environments that cannot be saved begin a new episode; what was under way in them is cut off here.
        self._observations.reset(first)
        self._received_early, self._pending = [], False
        self.episodes.cut()
        self.skills.start()
        if self.cursor:
            self._buffer.cut(self.cursor - 1)

    def _launch(self, group: int, t: int, agent: Agent, rng: Generator) -> None:
        rows = self.pool.groups[group]
        obs, skill = self._observations.now[rows], self.skills.current[rows]
        acted = agent.act(obs, skill, explore=True, rng=rng)
        action = acted.action.cpu().numpy()
        self.pool.send(group, action)
        self._buffer.write_action(t, rows, obs, skill, action, acted.extras)

    def _new_rows(self) -> RolloutBuffer:
        width = self.skills.current.shape[-1]
        return RolloutBuffer(self.rollout_steps, self.pool.num_envs, self.pool.spaces, width, self.device)
