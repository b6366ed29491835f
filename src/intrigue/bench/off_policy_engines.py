"""What a benchmark of learning from replay drives: something that steps and something that updates, phase by phase.

    step      environments, in this process or while waiting for workers
    act       the policy
    keep      what happened goes into the replay
    draw      a batch of it comes back
    bonus     it is scored, and the bonus's models learn
    agent     the agent learns

Any `Engine` can be measured by `train_off_policy`. `OneByOne` is how runs train that cannot be stacked: each by itself.

Seeds that learn together (`intrigue.training.stacked`) under a benchmark; and which engine training itself takes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from intrigue.agents.ddpg import DDPG
from intrigue.bench.timing import PhaseClock
from intrigue.replay.plan import updates_due
from intrigue.training.off_policy import PhaseTimer, ReplayParts, _update
from intrigue.training.stacked.trainer import StackedTrainer, why_not_stackable

PHASES = ("step", "act", "keep", "draw", "bonus", "agent")


class Engine(Protocol):
    """Some seeds of one setting that train side by side. Its spans have names of PHASES, as far as it can tell."""

    clock: PhaseClock
    staleness: int
    """How many updates the weights that act are behind the newest."""

    def advance(self) -> int:
        """One step of every environment of every seed, as the agents want it; how many updates of each it brought.

        Every one of them is a span `update`.
        """

    def update(self) -> None:
        """One update of every seed by itself."""


class OneByOne:
    """Seeds in turn, each exactly as `intrigue train` runs it alone."""

    def __init__(self, parts: Sequence[ReplayParts]) -> None:
        self.parts = parts
        agent, self._steps = parts[0].agent, 0
        self._rhythm = dataclasses.replace(agent.plan, learning_starts=0)
        self.staleness = int(agent.cfg.overlap) if isinstance(agent, DDPG) else 0
        self.clock = PhaseClock(parts[0].collector.replay.device)
        for each in parts:
            watched = (
                ("step", each.collector.pool, "step"),
                ("act", each.agent, "act"),
                ("keep", each.collector.replay, "add"),
                ("draw", each.collector.replay, "sample"),
                ("bonus", each.curiosity, "step_batch"),
                ("agent", each.agent, "update"),
            )
            for phase, owner, method in watched:
                self.clock.watch(phase, owner, method)

    def advance(self) -> int:
        """One step of every environment of every seed, and the updates that fall due with it."""
        for each in self.parts:
            each.collector.step(each.agent, each.streams["act"])
        taken = self.parts[0].collector.pool.num_envs
        self._steps += taken
        due = updates_due(self._steps, taken, self._rhythm)
        for _ in range(due):
            with self.clock.span("update"):
                self.update()
        return due

    def update(self) -> None:
        """One update of every seed by itself."""
        for each in self.parts:
            _update(each, PhaseTimer())


class Together:
    """All seeds in one computation. What an update is made of is not told apart: on a GPU it is one captured graph.

    On a GPU keeping counts as stepping, and updates run beside both: they are timed on the GPU, the others by the host.
    """

    def __init__(self, parts: Sequence[ReplayParts]) -> None:
        for each in parts:
            # Beyond the random steps, so that the policies act.
            each.collector.step_count = max(each.collector.step_count, each.agent.plan.learning_starts)
        self.clock = PhaseClock(parts[0].collector.replay.device)
        self.trainer = StackedTrainer(parts)
        self.staleness = 1 if self.trainer._explorers.overlap else 0
        self.clock.watch("update", self.trainer, "_begin_update")
        for name in ("begin", "actions"):
            self.clock.watch("act", self.trainer._explorers, name, host=True)
        if self.clock.device.type == "cuda":
            for name in ("_receive", "_record_pending"):
                self.clock.watch("step", self.trainer, name, host=True)
            return
        for each, stage in zip(parts, self.trainer._stages, strict=True):
            for name in ("push", "copy_pending"):
                self.clock.watch("keep", stage, name)
            for name in ("send", "receive"):
                self.clock.watch("step", each.collector.pool, name)

    def advance(self) -> int:
        """One step of every environment of every seed, and as many updates as begin with it."""
        before = self.trainer._update.count
        self.trainer.step()
        return self.trainer._update.count - before

    def update(self) -> None:
        """One update of every seed by itself."""
        self.trainer._learn(1)


def engine_of(parts: Sequence[ReplayParts]) -> Engine:
    """What `intrigue train` would train these with."""
    apart = any(why_not_stackable(each, 0) is not None for each in parts)
    return OneByOne(parts) if apart else Together(parts)
