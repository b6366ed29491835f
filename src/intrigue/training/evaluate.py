"""Playing a trained agent on the raw task: one episode after another, or several side by side.

Where a lost life ends an episode of training (`Env.goes_on`), an episode here is the whole game, all lives added: that
is the score papers report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Generator, Tensor

from intrigue.agents.base import Agent
from intrigue.agents.registry import AGENTS
from intrigue.config.run import flatten_json, resolve
from intrigue.envs.base import Env
from intrigue.envs.make import make_env
from intrigue.rewards.registry import REWARDS
from intrigue.rng import Streams
from intrigue.run import checkpoint
from intrigue.run.folder import RunFolder, read_config
from intrigue.seeding import derive_seed
from intrigue.skills import SkillCourse
from intrigue.spaces import Array, make_spaces
from intrigue.training.build import with_skills


@dataclass
class Played:
    """Raw returns and lengths of the episodes played, and the frames of the first when it was filmed."""

    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    frames: list[Array] = field(default_factory=list)


def play(folder: RunFolder, episodes: int, *, seed: int, greedy: bool, film: bool) -> Played:
    """Play the agent of a run's selected checkpoint."""
    cfg = resolve(flatten_json(read_config(folder)))
    saved = checkpoint.load(folder.checkpoints, on_skip=lambda text: None)
    entry = AGENTS.get(cfg.agent_name)
    env = make_env(cfg.env_id, cfg.env_options, render=film)
    try:
        spaces = make_spaces(env.info.obs_space, env.info.action_space)
        names = ("extrinsic", "intrinsic") if cfg.curiosity.streams == "two" else ("total",)
        reward = REWARDS.get(cfg.reward_name)
        skills = reward.cls.skills(reward.config(**{**reward.defaults, **cfg.reward_options}))
        agent_cfg = entry.config(**{**entry.defaults, **cfg.agent_options})
        agent = entry.cls(agent_cfg, with_skills(spaces, skills), names)
        agent.load_train_state(saved.state["agent"])
        agent.settle()
        streams = Streams(derive_seed(seed, "eval"))
        course = SkillCourse(skills, 1, streams["skill"])
        held = saved.state["collector"]["skills"]["held"]
        if held is not None:  # the one skill that a fine-tuned policy follows
            course.hold(held)
        course.start()
        seeds = [derive_seed(seed, "eval", episode) for episode in range(episodes)]
        return play_episodes(agent, env, course, seeds, streams["eval"], greedy=greedy, film=film)
    finally:
        env.close()


def play_episodes(
    agent: Agent, env: Env, course: SkillCourse, seeds: Sequence[int], rng: Generator, *, greedy: bool, film: bool
) -> Played:
    """One episode or whole game from each seed, on the agent's device, which is the generator's."""
    played = Played()
    for episode, seed in enumerate(seeds):
        obs, total, length, ended = env.reset(seed), 0.0, 0, False
        while not ended:
            if film and episode == 0 and (frame := env.render()) is not None:
                played.frames.append(frame)
            seen = torch.from_numpy(np.array(obs)).unsqueeze(0).to(rng.device)
            acted = agent.act(seen, course.current, explore=not greedy, rng=rng)
            step = env.step(acted.action[0].cpu().numpy())
            obs, total, length = step.obs, total + step.reward, length + 1
            ended = step.terminated or step.truncated
            course.advance(torch.tensor([ended]))
            if ended and env.goes_on:
                obs, ended = env.reset(None), False
        played.returns.append(total)
        played.lengths.append(length)
    return played


def play_together(agent: Agent, envs: Sequence[Env], skill: Tensor, seeds: Sequence[int], rng: Generator) -> Played:
    """One greedy episode from each seed, as many at a time as there are environments; all follow one skill (1, K).

    Each is the episode that `play_episodes` plays, up to the rounding of matrix products of several rows, unless the
    policy draws even when it is greedy (`random`). Environments whose episodes are parts of games (`has_lives`) do not
    belong here.
    """
    played = Played(returns=[0.0] * len(seeds), lengths=[0] * len(seeds))
    for first in range(0, len(seeds), len(envs)):
        going = dict(enumerate(envs[: len(seeds) - first], start=first))  # by episode
        obs = {episode: env.reset(seeds[episode]) for episode, env in going.items()}
        while going:
            # One copy to the device and one back for a step of all of them.
            seen = torch.from_numpy(np.stack([obs[episode] for episode in going])).to(rng.device)
            acted = agent.act(seen, skill.expand(len(going), -1), explore=False, rng=rng)
            actions = acted.action.cpu().numpy()
            for row, (episode, env) in enumerate([*going.items()]):
                step = env.step(actions[row, ...])  # an array also where it is a single number
                obs[episode] = step.obs
                played.returns[episode] += step.reward
                played.lengths[episode] += 1
                if step.terminated or step.truncated:
                    del going[episode]
    return played


def has_lives(env: Env) -> bool:
    """Whether an episode of this environment may be one life of a game."""
    return type(env).goes_on is not Env.goes_on


def summary(played: Played) -> dict[str, float]:
    """The figures of the episodes played."""
    returns, lengths = np.array(played.returns), np.array(played.lengths)
    return {
        "episodes": len(returns),
        "return_mean": float(returns.mean()),
        "return_std": float(returns.std()),
        "return_min": float(returns.min()),
        "return_max": float(returns.max()),
        "length_mean": float(lengths.mean()),
    }
