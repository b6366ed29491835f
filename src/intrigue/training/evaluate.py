"""Playing a trained agent on the raw task: one episode after another, or several side by side.

Where a lost life ends an episode of training (`Env.game_continues`), an episode here is the whole game, all lives
added: that is the score papers report.

Evaluations while a run trains: greedy episodes in environments of their own. They change nothing in the training.

The episodes of one evaluation are played side by side, so that the policy is asked once for a step of all of them.
Games of several lives are played one after another.

Episodes depend on the run's seed, the step and their number alone, so that a run that was stopped evaluates as one that
was not. A policy with skills follows the one that is held, or one that is drawn for the whole evaluation, as URLB does.

Environments that evaluations play in, shared by all runs of this process that ask for the same ones.

Seeds that learn together are evaluated one after another, so one set serves all of them: ten environments of DeepMind
Control take a second or more to make and a hundred megabytes. An episode begins with a seed, so who played before
leaves no trace in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch import Generator, Tensor

from intrigue.agents.base import Agent
from intrigue.config.run import RunConfig
from intrigue.envs.base import Env
from intrigue.envs.make import EnvMaker
from intrigue.rng import Streams
from intrigue.seeding import derive_seed
from intrigue.skills import SkillSampler
from intrigue.spaces import Array
from intrigue.training.loops import AnyParts
from intrigue.types import Metrics


@dataclass
class Played:
    """Raw returns and lengths of the episodes played, and the frames of the first when it was filmed."""

    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    frames: list[Array] = field(default_factory=list)


def play_episodes(
    agent: Agent, env: Env, course: SkillSampler, seeds: Sequence[int], rng: Generator, *, greedy: bool, film: bool
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
            if ended and env.game_continues:
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
    return type(env).game_continues is not Env.game_continues


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


@final
class SharedEnvs:
    """Environments alike, made when they are first asked for, and closed when the last holder has let go."""

    _held: ClassVar[dict[tuple[str, str], SharedEnvs]] = {}

    def __init__(self, key: tuple[str, str], make: EnvMaker) -> None:
        self._key, self._make = key, make
        self._holders = 0
        self._envs: list[Env] = []

    @classmethod
    def hold(cls, env_id: str, options: Mapping[str, Any]) -> SharedEnvs:
        """The environments of this id and these options, to be let go once for each time they are held."""
        key = (env_id, repr(sorted(options.items())))
        shared = cls._held.setdefault(key, cls(key, EnvMaker(env_id, options)))
        shared._holders += 1
        return shared

    def take(self, count: int) -> list[Env]:
        """As many of them, for one evaluation; made where they are too few."""
        while len(self._envs) < count:
            self._envs.append(self._make())
        return self._envs[:count]

    def let_go(self) -> None:
        """One holder fewer."""
        self._holders -= 1
        if self._holders == 0:
            del self._held[self._key]
            while self._envs:
                self._envs.pop().close()


SIDE_BY_SIDE = 16  # ours: environments at most; URLB plays ten episodes, and more need not mean more memory


@final
class Evaluator:
    """Plays the agent of a run every so many steps."""

    def __init__(self, cfg: RunConfig, parts: AnyParts) -> None:
        self.cfg, self.parts = cfg, parts
        self._envs: SharedEnvs | None = None

    def due(self, before: int, step: int) -> bool:
        """Whether an evaluation falls between these steps of the run; the last step has one too."""
        every = self.cfg.run.eval_every
        return bool(every) and (before // every != step // every or step >= self.cfg.run.steps)

    def __call__(self, step: int) -> Metrics:
        """What the agent reaches now."""
        seed, skills = self.cfg.run.seed, self.parts.curiosity.skills
        streams = Streams(derive_seed(seed, "evaluation", step), self.parts.curiosity.obs_moments.mean.device)
        course = SkillSampler(skills, 1, streams["skill"])
        if skills is not None:
            held = self.parts.collector.skills.held
            course.hold(skills.draw(1, streams["skill"])[0] if held is None else held)
        seeds = [derive_seed(seed, "evaluation", step, episode) for episode in range(self.cfg.run.eval_episodes)]
        played = self._play(course, seeds, streams["eval"])
        found = {f"eval/{name}": value for name, value in summary(played).items()}
        from intrigue.scores.normalized import expert_of  # here: only evaluations read the tables of scores

        expert = expert_of(self.cfg.env_id)
        return found if expert is None else {**found, "eval/normalized": found["eval/return_mean"] / expert}

    def _play(self, course: SkillSampler, seeds: Sequence[int], rng: Generator) -> Played:
        if self._envs is None:
            self._envs = SharedEnvs.hold(self.cfg.env_id, self.cfg.env_options)
        agent, (first,) = self.parts.agent, self._envs.take(1)
        if has_lives(first):
            return play_episodes(agent, first, course, seeds, rng, greedy=True, film=False)
        return play_together(agent, self._envs.take(min(len(seeds), SIDE_BY_SIDE)), course.current, seeds, rng)

    def close(self) -> None:
        """Let go of the environments."""
        if self._envs is not None:
            self._envs.let_go()
            self._envs = None
