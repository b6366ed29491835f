"""Evaluations play whole games, all lives added, where a lost life ends an episode of training."""

from __future__ import annotations

from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch

from intrigue.envs.base import Env, EnvInfo, Step
from intrigue.envs.make import make_env
from intrigue.skills import SkillSampler
from intrigue.training.evaluate import play_episodes


class ThreeLives(Env):
    """Lives of 2, 3 and 4 steps; a step of life k pays 10ᵏ. The observation counts the lives begun with this game."""

    def __init__(self, truncates: bool = False) -> None:
        self.info = EnvInfo(gym.spaces.Box(0, 9, (1,), np.float32), gym.spaces.Discrete(2))
        self.truncates, self.life, self.time, self.seen = truncates, 0, 0, []

    @property
    def game_continues(self) -> bool:
        return 0 < self.time == self.life + 2 and self.life < 2 and not self.truncates

    def reset(self, seed):
        self.seen.append(seed)
        self.life, self.time = (self.life + 1 if self.game_continues and seed is None else 0), 0
        return np.array([self.life], np.float32)

    def step(self, action):
        self.time += 1
        over = self.time == self.life + 2
        reward = 10.0**self.life
        return Step(np.array([self.life], np.float32), reward, over and not self.truncates, over and self.truncates)


def played_by(env: Env, seeds: list[int], actions: int):
    """What a policy of uniform actions reaches, and the observations it acted on."""
    seen: list[float] = []

    def act(obs, skill, *, explore, rng):
        seen.append(float(obs.float().mean()))
        return SimpleNamespace(action=torch.randint(actions, (1,), generator=rng))

    rng = torch.Generator().manual_seed(3)
    course = SkillSampler(None, 1, torch.Generator())
    course.start()
    agent = SimpleNamespace(act=act)
    return play_episodes(agent, env, course, seeds, rng, greedy=False, film=False), seen


def test_the_lives_of_a_game_are_added() -> None:
    env = ThreeLives()
    played, seen = played_by(env, [5, 6], 2)
    assert played.returns == [2 * 1 + 3 * 10 + 4 * 100] * 2
    assert played.lengths == [9, 9]
    assert seen == [0, 0, 1, 1, 1, 2, 2, 2, 2] * 2, "the first picture of a life is what the policy acts on"
    assert env.seen == [5, None, None, 6, None, None], "a game begins with its seed, a life without"


def test_what_is_cut_off_is_over() -> None:
    played, _ = played_by(ThreeLives(truncates=True), [5], 2)
    assert (played.returns, played.lengths) == ([2.0], [2])


@pytest.mark.parametrize("protocol", ["dqn", "large-scale-curiosity"])
def test_a_game_of_atari_is_played_to_its_last_life(protocol: str) -> None:
    """Breakout has five lives; both protocols draw the same no-ops, and lives apart, nothing else tells them apart."""
    env = make_env("atari/Breakout", {"protocol": protocol})
    played, _ = played_by(env, [1], 4)
    assert env._emulator.lives == 0 and env._emulator.console.game_over()
    assert played.lengths[0] > 100
    whole = make_env("atari/Breakout", {"protocol": "large-scale-curiosity"})
    assert (played.returns, played.lengths) == tuple(map(list, _by_hand(whole, 1)))


def _by_hand(env: Env, seed: int) -> tuple[list[float], list[int]]:
    rng = torch.Generator().manual_seed(3)
    env.reset(seed)
    total, length, over = 0.0, 0, False
    while not over:
        step = env.step(np.array(int(torch.randint(4, (1,), generator=rng))))
        total, length, over = total + step.reward, length + 1, step.terminated
    return [total], [length]
