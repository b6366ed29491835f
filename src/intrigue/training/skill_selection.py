"""Which skill a policy follows while it learns a task, where skills were learned before (URLB's fine-tuning).

    drawn      as in pre-training, at random                            DIAYN, as URLB leaves it
    middle     0.5 in every number                                      CIC (its code)
    tried      each for one episode, then the best for good             SMM (URLB's words; its test for it is inverted)
    regressed  the task that the rewards seen so far ask for, every few steps                                    APS

Trials begin when actions begin to heed the skill, after the random steps at the start; an episode that was under way
does not count. A task is regressed on single steps: rewards on features of the states they were given for, where URLB
exchanges the two and has sums over n steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch.nn import functional

from intrigue.curiosity.curiosity import Curiosity
from intrigue.errors import ConfigError, Problem
from intrigue.rewards.base import SkillRule
from intrigue.state import State
from intrigue.training.replay_collector import ReplayCollector
from intrigue.types import Episode

MIDDLE = 0.5  # CIC cic.py init_meta
REGRESSION_BEGINS = 4096  # steps: URLB aps.yaml num_init_steps
REGRESSION_ROWS = 4096  # transitions a task is regressed on: URLB aps.yaml lstsq_batch_size
REGRESSION_EVERY = 5  # steps: URLB aps.yaml update_task_every_step


@final
class SkillChoice:
    """Looks on after every step, and says which skill is to be held."""

    def __init__(self, rule: SkillRule, collector: ReplayCollector, curiosity: Curiosity, learning_starts: int) -> None:
        self.rule: SkillRule = rule
        self.collector, self.curiosity, self.learning_starts = collector, curiosity, learning_starts
        if wrong := refusal(rule, curiosity):
            raise ConfigError([Problem("curiosity.follow", wrong)])
        self.trial_began: int | None = None
        self.returns: list[float] = []
        """Mean return of each skill that was tried, in order."""
        if rule == "middle":
            collector.skills.hold(torch.full_like(collector.skills.current[0], MIDDLE))

    def note(self, episodes: Sequence[Episode]) -> None:
        """After a step, with the episodes that ended in it."""
        if self.rule == "tried":
            self._try(episodes)
        elif self.rule == "regressed":
            self._regress()

    def _try(self, episodes: Sequence[Episode]) -> None:
        step, width = self.collector.step_count, self.collector.skills.current.shape[-1]
        if len(self.returns) == width or step < self.learning_starts:
            return
        if self.trial_began is None:
            self._hold(0, step)
            return
        whole = [each for each in episodes if each.length * self.collector.pool.num_envs <= step - self.trial_began]
        if whole:
            self.returns.append(sum(each.episodic_return for each in whole) / len(whole))
            best = max(range(len(self.returns)), key=self.returns.__getitem__)
            self._hold(len(self.returns) if len(self.returns) < width else best, step)

    def _hold(self, index: int, step: int) -> None:
        current = self.collector.skills.current
        self.collector.skills.hold(functional.one_hot(torch.tensor(index), current.shape[-1]).to(current))
        self.trial_began = step

    @torch.no_grad()
    def _regress(self) -> None:
        step, taken = self.collector.step_count, self.collector.pool.num_envs
        due = step // REGRESSION_EVERY != (step - taken) // REGRESSION_EVERY
        if step <= max(REGRESSION_BEGINS, self.learning_starts) or not due or not len(self.collector.replay):
            return
        batch = self.collector.replay.sample_single_steps(REGRESSION_ROWS, self.collector.skills.rng)
        task = self.curiosity.reward.task_from(self.curiosity.prepare(batch))
        if bool(task.any()):  # without any reward so far there is no task to follow
            self.collector.skills.hold(task)

    def state_dict(self) -> State:
        """How far the trials are."""
        return {"trial_began": self.trial_began, "returns": list(self.returns)}

    def load_state_dict(self, state: State) -> None:
        """Put back what `state_dict` gave."""
        self.trial_began, self.returns = state["trial_began"], [float(each) for each in state["returns"]]


def refusal(rule: SkillRule, curiosity: Curiosity) -> str | None:
    """Why a policy under this reward cannot choose its skill so; None if it can."""
    kind = curiosity.skills.kind if curiosity.skills else "none"
    if rule == "drawn":
        return None
    if curiosity.skills is None:
        return f"{rule!r}, but this reward has no skills. Use 'drawn'."
    if rule == "tried" and kind != "one-hot":
        return f"'tried' goes through skills one by one; those of this reward are {kind}. Use 'drawn'."
    if rule == "regressed" and curiosity.reward.finetune_skill != "regressed":
        return "'regressed' needs the features of the reward aps. Use 'drawn'."
    return None
