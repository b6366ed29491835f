"""What a benchmark of learning from replay drives: something that steps and something that updates, phase by phase.

    step      environments, in this process or while waiting for workers
    act       the policy
    keep      what happened goes into the replay
    draw      a batch of it comes back
    bonus     it is scored, and the bonus's models learn
    agent     the agent learns

Any `Engine` can be measured by `train_replay`. `OneByOne` is how runs train that cannot be stacked: each by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from intrigue.agents.ddpg import DDPG
from intrigue.bench.phase_clock import PhaseClock
from intrigue.training.replay import Clock, ReplayParts, _update

PHASES = ("step", "act", "keep", "draw", "bonus", "agent")


class Engine(Protocol):
    """Some seeds of one setting that train side by side. Its spans have names of PHASES, as far as it can tell."""

    clock: PhaseClock
    staleness: int
    """How many updates the weights that act are behind the newest."""

    def step_once(self) -> None:
        """One step of every environment of every seed, as the agents want it."""

    def update(self) -> None:
        """One update of every seed."""


class OneByOne:
    """Seeds in turn, each exactly as `intrigue train` runs it alone."""

    def __init__(self, parts: Sequence[ReplayParts]) -> None:
        self.parts = parts
        agent = parts[0].agent
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

    def step_once(self) -> None:
        """One step of every environment of every seed."""
        for each in self.parts:
            each.collector.step(each.agent, each.streams["act"])

    def update(self) -> None:
        """One update of every seed."""
        for each in self.parts:
            _update(each, Clock())
