"""Evaluations while a run trains: greedy episodes in environments of their own, without a trace in the training.

The episodes of one evaluation are played side by side, so that the policy is asked once for a step of all of them.
Games of several lives are played one after another.

Episodes depend on the run's seed, the step and their number alone, so that a run that was stopped evaluates as one that
was not. A policy with skills follows the one that is held, or one that is drawn for the whole evaluation, as URLB does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from torch import Generator

from intrigue.config.run import RunConfig
from intrigue.rng import Streams
from intrigue.scores.urlb import expert_of
from intrigue.seeding import derive_seed
from intrigue.skills import SkillCourse
from intrigue.training.evaluate import Played, has_lives, play_episodes, play_together, summary
from intrigue.training.loops import AnyParts
from intrigue.training.shared_envs import SharedEnvs
from intrigue.types import Metrics

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
        course = SkillCourse(skills, 1, streams["skill"])
        if skills is not None:
            held = self.parts.collector.skills.held
            course.hold(skills.draw(1, streams["skill"])[0] if held is None else held)
        seeds = [derive_seed(seed, "evaluation", step, episode) for episode in range(self.cfg.run.eval_episodes)]
        played = self._play(course, seeds, streams["eval"])
        found = {f"eval/{name}": value for name, value in summary(played).items()}
        expert = expert_of(self.cfg.env_id)
        return found if expert is None else {**found, "eval/normalized": found["eval/return_mean"] / expert}

    def _play(self, course: SkillCourse, seeds: Sequence[int], rng: Generator) -> Played:
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
