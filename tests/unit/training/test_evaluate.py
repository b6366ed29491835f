"""Evaluations side by side: each episode is the one that would be played alone, with fewer calls of the policy."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from conftest import TINY
from finetune_runs import shrunk
from intrigue.agents.ddpg import DDPG, DDPGConfig
from intrigue.config.run import resolve
from intrigue.envs.base import Env, EnvInfo, Step
from intrigue.envs.chain import Chain, ChainConfig
from intrigue.envs.make import EnvMaker, make_env
from intrigue.skills import SkillSampler, SkillSpec
from intrigue.spaces import make_spaces
from intrigue.training import evaluate as evaluation
from intrigue.training.build import build, with_skills
from intrigue.training.evaluate import Evaluator, SharedEnvs, has_lives, play_episodes, play_together

NO_ENV = {key: value for key, value in TINY.items() if not key.startswith("env")}
SKILLS = SkillSpec("sphere", 2, every=0)


class Drift(Env):
    """A point that is pushed around; seed s begins at s and lasts 3 + s mod 5 steps. One array is written over."""

    def __init__(self) -> None:
        self.info = EnvInfo(gym.spaces.Box(-9, 9, (3,), np.float32), gym.spaces.Box(-1, 1, (2,), np.float32))
        self.obs, self.left = np.zeros(3, np.float32), 0

    def reset(self, seed):
        self.obs[:] = np.sin([seed, 2 * seed, 3 * seed])
        self.left = 3 + seed % 5
        return self.obs

    def step(self, action):
        self.left -= 1
        self.obs[:2] += action
        self.obs[2] = np.cos(self.obs[0])
        terminated = self.left == 0 and self.obs[0] > 0
        return Step(self.obs, float(self.obs.sum()), terminated, self.left == 0 and not terminated)


class Watched(DDPG):
    """A tiny policy that notes how many it acts for, and under which skills."""

    def act(self, obs, skill, *, explore, rng):
        assert not explore
        self.rows.append(len(obs))
        self.skills.append(skill.clone())
        return super().act(obs, skill, explore=explore, rng=rng)


def watched(env, device="cpu"):
    torch.manual_seed(0)
    spaces = with_skills(make_spaces(env.info.obs_space, env.info.action_space), SKILLS)
    agent = Watched(DDPGConfig(hidden=8), spaces, ("total",)).to(device)
    for weight in agent.actor.parameters():
        torch.nn.init.normal_(weight)  # as initialised its actions hardly differ
    agent.rows, agent.skills = [], []
    course = SkillSampler(SKILLS, 1, torch.Generator(device).manual_seed(1))
    course.hold(torch.tensor([0.6, -0.8]))
    return agent, course


SEEDS = [7, 3, 12, 4, 0, 9, 21]  # of 5, 6, 5, 7, 3, 7 and 4 steps


@pytest.mark.parametrize("envs", [1, 3, 7, 9])
def test_episodes_are_those_played_one_by_one(envs):
    agent, course = watched(Drift())
    alone = play_episodes(agent, Drift(), course, SEEDS, course.rng, greedy=True, film=False)
    assert alone.lengths == [5, 6, 5, 7, 3, 7, 4] == [3 + seed % 5 for seed in SEEDS]
    assert len({round(each, 3) for each in alone.returns}) == 7, "episodes that differ"
    together = play_together(agent, [Drift() for _ in range(envs)], course.current, SEEDS, course.rng)
    assert together.lengths == alone.lengths
    assert together.returns == pytest.approx(alone.returns, rel=1e-6)


def test_the_policy_is_asked_once_a_step_for_those_still_going():
    agent, course = watched(Drift())
    play_together(agent, [Drift() for _ in SEEDS], course.current, SEEDS, course.rng)
    assert agent.rows == [7, 7, 7, 6, 5, 3, 2]
    assert all(torch.equal(row, torch.tensor([0.6, -0.8])) for skill in agent.skills for row in skill)
    agent.rows.clear()
    play_together(agent, [Drift() for _ in range(4)], course.current, SEEDS, course.rng)
    assert agent.rows == [4, 4, 4, 4, 4, 2, 1, 3, 3, 3, 2, 1, 1, 1], "four at a time, then the other three"


@pytest.mark.parametrize("env", ["dmc/walker_walk", "chain"])
def test_real_environments_give_the_same(env):
    if env == "chain":
        cfg = resolve({**NO_ENV, "env": env})
    else:
        cfg = shrunk("scratch-urlb", env=env, **{"env.max_episode_steps": 30})
    parts = build(cfg)
    try:
        course = SkillSampler(None, 1, torch.Generator())
        alone = play_episodes(
            parts.agent, make_env(cfg.env_id, cfg.env_options), course, SEEDS[:4], course.rng, greedy=True, film=False
        )
        envs = [make_env(cfg.env_id, cfg.env_options) for _ in range(4)]
        envs[0].reset(99)  # somebody played here before
        together = play_together(parts.agent, envs, course.current, SEEDS[:4], course.rng)
        assert together.lengths == alone.lengths and min(alone.lengths) > 5
        assert together.returns == pytest.approx(alone.returns, rel=1e-6)
        for each in envs:
            each.close()
    finally:
        parts.close()


# --- the evaluator


@pytest.fixture
def made(monkeypatch):
    """Every environment that is made for evaluations, and which of them were closed."""
    envs, closed = [], []

    def noted(self):
        env = make(self)
        close = env.close
        env.close = lambda: (closed.append(env), close())
        envs.append(env)
        return env

    make = EnvMaker.__call__
    monkeypatch.setattr(EnvMaker, "__call__", noted)
    return envs, closed


def parts_of(seed, **changes):
    cfg = shrunk("scratch-urlb", seed=seed, **{"run.eval_every": 60, "run.eval_episodes": 3, **changes})
    return cfg, build(cfg)


def test_seeds_share_the_environments_until_the_last_has_let_go(made):
    envs, closed = made
    pairs = [parts_of(seed) for seed in (0, 1)]
    envs.clear()  # those of the training
    one, two = (Evaluator(*pair) for pair in pairs)
    first = one(60)
    assert (len(envs), first["eval/episodes"]) == (3, 3)
    other = two(60)
    assert len(envs) == 3, "made once"
    assert first != other
    one.close()
    one.close()
    assert not closed
    again = Evaluator(*pairs[0])
    assert again(60) == first, "who played there meanwhile does not matter"
    again.close()
    assert two(60) == other
    two.close()
    assert [*map(id, closed)] == [*map(id, reversed(envs))] and not SharedEnvs._held
    fresh = Evaluator(*pairs[0])
    assert fresh(60) == first and len(envs) == 6
    fresh.close()
    for _, parts in pairs:
        parts.close()


def test_other_settings_have_environments_of_their_own():
    one, two, three = (SharedEnvs.hold("chain", options) for options in ({"length": 5}, {"length": 6}, {"length": 5}))
    assert one is three is not two
    assert two.take(1)[0].info.obs_space.shape == (6,)
    for each in (one, two, three):
        each.let_go()
    assert not SharedEnvs._held


def test_many_episodes_take_turns_in_few_environments(made, monkeypatch):
    cfg, parts = parts_of(0, **{"run.eval_episodes": 5})
    envs, _ = made
    envs.clear()
    found = []
    for most in (2, 16):
        monkeypatch.setattr(evaluation, "SIDE_BY_SIDE", most)
        evaluator = Evaluator(cfg, parts)
        found.append(evaluator(60))
        evaluator.close()
    assert len(envs) == 2 + 5
    assert found[0] == pytest.approx(found[1], rel=1e-6)
    parts.close()


class ThreeLives(Env):
    """Three walks along a chain make a game."""

    def __init__(self) -> None:
        self.chain, self.life, self.seeds = Chain(ChainConfig(length=5)), 0, []
        self.info, self.over = self.chain.info, False

    @property
    def game_continues(self):
        return self.over and self.life < 2

    def reset(self, seed):
        self.seeds.append(seed)
        self.life, self.over = (self.life + 1 if seed is None else 0), False
        return self.chain.reset(seed)

    def step(self, action):
        step = self.chain.step(action)
        self.over = step.terminated or step.truncated
        return step


def test_games_of_several_lives_are_played_one_by_one(monkeypatch):
    parts = build(cfg := resolve({**NO_ENV, "env": "chain", "env.length": 5, "run.eval_episodes": 2}))
    envs = []
    monkeypatch.setattr(EnvMaker, "__call__", lambda _: envs.append(ThreeLives()) or envs[-1])
    evaluator = Evaluator(cfg, parts)
    try:
        found = evaluator(10)
        assert [len(each.seeds) for each in envs] == [6] and envs[0].seeds[1:3] == envs[0].seeds[4:] == [None, None]
        assert found["eval/episodes"] == 2
        assert found["eval/length_mean"] in (3 * 4, 3 * 14), "to the far end of the chain, or to the limit, three times"
    finally:
        evaluator.close()
        parts.close()


@pytest.mark.parametrize(("env", "lives"), [("atari/Breakout", True), ("chain", False), ("dmc/walker", False)])
def test_families_that_may_have_lives(env, lives):
    found = make_env(env, {})
    assert has_lives(found) is lives
    found.close()


@pytest.mark.gpu
def test_a_gpu_is_sent_to_once_a_step_and_answers_once():
    agent, course = watched(Drift(), "cuda")
    envs = [Drift() for _ in SEEDS]
    play_together(agent, envs, course.current, SEEDS, course.rng)  # libraries load themselves
    agent.rows.clear()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        play_together(agent, envs, course.current, SEEDS, course.rng)
    copies = [event.name for event in seen.events() if "Memcpy" in event.name]
    for way in ("HtoD", "DtoH"):
        assert sum(way in name for name in copies) == len(agent.rows) == 7
