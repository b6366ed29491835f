"""A made-up world whose every observation says where it was seen, and a replay of it kept as plain lists."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from intrigue.replay.buffer import ReplayBuffer
from intrigue.replay.plan import ReplayPlan
from intrigue.replay.step_store import VectorStep
from intrigue.spaces import ActionSpec, ObsSpec, Spaces


@dataclass
class Seen:
    """One transition as the world knows it."""

    obs: np.ndarray
    next_obs: np.ndarray
    action: int
    reward: float
    terminated: bool
    truncated: bool
    valid: bool
    skill: np.ndarray


@dataclass
class World:
    """N environments with random ends; a frame is (environment, episode, time) in three bytes."""

    envs: int
    stack: int
    seed: int = 0
    end: float = 0.2
    skill: int = 0
    late: bool = False  # resets one step late, as some vector environments: the row between is not valid
    seen: list[list[Seen]] = field(default_factory=list)  # by step and environment

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.episode = np.zeros(self.envs, dtype=int)
        self.time = np.zeros(self.envs, dtype=int)
        self.over = np.zeros(self.envs, dtype=bool)
        self.asked = self.rng.integers(0, 3, (self.envs, self.skill)).astype(np.float32)
        shape = (self.stack, 1, 3) if self.stack else (3,)
        self.spaces = Spaces(
            ObsSpec("pixels" if self.stack else "vector", shape), ActionSpec("discrete", sizes=(7,)), self.skill
        )

    def frame(self, env: int, episode: int, time: int) -> np.ndarray:
        row = np.array([env, episode % 251, time], dtype=self.spaces.obs.dtype)
        return row[None] if self.stack else row

    def frames(self) -> np.ndarray:
        return np.stack([self.frame(i, self.episode[i], self.time[i]) for i in range(self.envs)])

    def stacked(self, env: int, episode: int, time: int) -> np.ndarray:
        """The whole observation: the last frames of this episode, its first repeated before its start."""
        if not self.stack:
            return self.frame(env, episode, time)
        return np.stack([self.frame(env, episode, max(0, time - back)) for back in range(self.stack - 1, -1, -1)])

    def step(self, replay: ReplayBuffer) -> None:
        """One step of all environments into the replay and into `seen`."""
        action = self.rng.integers(0, 7, self.envs)
        reward = self.rng.normal(size=self.envs)
        terminated, truncated = self.rng.random(self.envs) < self.end, self.rng.random(self.envs) < self.end
        valid = ~self.over if self.late else np.ones(self.envs, dtype=bool)
        terminated, truncated = terminated & valid, truncated & valid
        over = terminated | truncated
        rows, reached = [], []
        for i in range(self.envs):
            here, there = (i, self.episode[i], self.time[i]), (i, self.episode[i], self.time[i] + 1)
            rows.append(
                Seen(
                    self.stacked(*here), self.stacked(*there), int(action[i]), float(np.float32(reward[i])),
                    bool(terminated[i]), bool(truncated[i]), bool(valid[i]), self.asked[i].copy(),
                )
            )  # fmt: skip
            reached.append(self.frame(*there))
        self.seen.append(rows)
        followed = torch.from_numpy(self.asked.copy())
        self.time += 1
        begin = ~valid if self.late else over
        self.episode[begin] += 1
        self.time[begin] = 0
        self.over = over
        change = over | (self.rng.random(self.envs) < 0.3)
        self.asked[change] = self.rng.integers(0, 3, (int(change.sum()), self.skill))
        taken = VectorStep(
            action=action, skill=followed, reward=reward, terminated=terminated, truncated=truncated, valid=valid,
            next_frames=np.stack(reached), frames=self.frames(),
        )  # fmt: skip
        replay.add(taken)


def plan_of(**changes) -> ReplayPlan:
    usual = {"capacity": 300, "batch": 64, "learning_starts": 0, "train_every": 1, "discount": 0.9}
    return ReplayPlan(**{**usual, **changes})


def replay_of(world: World, seed: int = 0, **changes) -> ReplayBuffer:
    cpu = torch.device("cpu")
    plan = plan_of(**changes)
    return ReplayBuffer(plan, world.spaces, world.envs, stack=world.stack, seed=seed, device=cpu, storage_device=cpu)
