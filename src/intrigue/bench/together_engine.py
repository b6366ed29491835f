"""Seeds that learn together (`intrigue.training.stacked`) under a benchmark; and which engine training itself takes."""

from __future__ import annotations

from collections.abc import Sequence

from intrigue.bench.off_policy_engines import Engine, OneByOne
from intrigue.bench.phase_clock import PhaseClock
from intrigue.training.off_policy import ReplayParts
from intrigue.training.stacked.trainer import Cohort, refusal


class Together:
    """All seeds in one computation. What an update is made of is not told apart: on a GPU it is one captured graph.

    On a GPU keeping counts as stepping, and updates run beside both: they are timed on the GPU, the others by the host.
    """

    def __init__(self, parts: Sequence[ReplayParts]) -> None:
        for each in parts:
            # Beyond the random steps, so that the policies act.
            each.collector.step_count = max(each.collector.step_count, each.agent.plan.learning_starts)
        self.clock = PhaseClock(parts[0].collector.replay.device)
        self.cohort = Cohort(parts)
        self.staleness = 1 if self.cohort._explorers.overlap else 0
        self.clock.watch("update", self.cohort, "_begin_update")
        for name in ("begin", "actions"):
            self.clock.watch("act", self.cohort._explorers, name, host=True)
        if self.clock.device.type == "cuda":
            for name in ("_receive", "_catch_up"):
                self.clock.watch("step", self.cohort, name, host=True)
            return
        for each, stage in zip(parts, self.cohort._stages, strict=True):
            for name in ("expect", "catch_up"):
                self.clock.watch("keep", stage, name)
            for name in ("send", "receive"):
                self.clock.watch("step", each.collector.pool, name)

    def advance(self) -> int:
        """One step of every environment of every seed, and as many updates as begin with it."""
        before = self.cohort._update.count
        self.cohort.step()
        return self.cohort._update.count - before

    def update(self) -> None:
        """One update of every seed by itself."""
        self.cohort._learn(1)


def engine_of(parts: Sequence[ReplayParts]) -> Engine:
    """What `intrigue train` would train these with."""
    apart = any(refusal(each, 0) is not None for each in parts)
    return OneByOne(parts) if apart else Together(parts)
