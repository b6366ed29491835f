"""Evaluations while a run trains: greedy episodes in an environment of their own, without a trace in the training.

Episodes depend on the run's seed, the step and their number alone, so that a run that was stopped evaluates as one that
was not. A policy with skills follows the one that is held, or one that is drawn for the whole evaluation, as URLB does.
"""

from __future__ import annotations

from typing import final

from intrigue.config import RunConfig
from intrigue.envs.base import Env
from intrigue.envs.make import make_env
from intrigue.rng import Streams
from intrigue.scores.urlb import expert_of
from intrigue.seeds import derive_seed
from intrigue.skills import SkillCourse
from intrigue.training.evaluate import play_episodes, summary
from intrigue.training.loops import AnyParts
from intrigue.types import Metrics


@final
class Evaluator:
    """Plays the agent of a run every so many steps."""

    def __init__(self, cfg: RunConfig, parts: AnyParts) -> None:
        self.cfg, self.parts = cfg, parts
        self._env: Env | None = None

    def due(self, before: int, step: int) -> bool:
        """Whether an evaluation falls between these steps of the run; the last step has one too."""
        every = self.cfg.run.eval_every
        return bool(every) and (before // every != step // every or step >= self.cfg.run.steps)

    def __call__(self, step: int) -> Metrics:
        """What the agent reaches now."""
        if self._env is None:
            self._env = make_env(self.cfg.env_id, self.cfg.env_options)
        seed, skills = self.cfg.run.seed, self.parts.curiosity.skills
        streams = Streams(derive_seed(seed, "evaluation", step), self.parts.curiosity.obs_moments.mean.device)
        course = SkillCourse(skills, 1, streams["skill"])
        if skills is not None:
            held = self.parts.collector.skills.held
            course.hold(skills.draw(1, streams["skill"])[0] if held is None else held)
        seeds = [derive_seed(seed, "evaluation", step, episode) for episode in range(self.cfg.run.eval_episodes)]
        played = play_episodes(self.parts.agent, self._env, course, seeds, streams["eval"], greedy=True, film=False)
        found = {f"eval/{name}": value for name, value in summary(played).items()}
        expert = expert_of(self.cfg.env_id)
        return found if expert is None else {**found, "eval/normalized": found["eval/return_mean"] / expert}

    def close(self) -> None:
        """Let go of the environment."""
        if self._env is not None:
            self._env.close()
