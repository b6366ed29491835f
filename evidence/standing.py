"""How each wanted run stands: by the results, the credits and the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from evidence.jobs import jobs_of
from evidence.packing import Job
from evidence.plan import Group, Plan, QueueError, Run, credits
from evidence.records import read_ledger, read_results

STATES = ("done", "out", "partly", "lost", "wanted")


@dataclass(frozen=True)
class Standing:
    """The state of every wanted run, and what is needed to plan the missing ones.

    done: complete, or credited · out: in a batch that may still come back · partly: rows of a run that was cut ·
    lost: handed out, and nothing came back · wanted: never handed out
    """

    plan: Plan
    identities: Mapping[Run, str]
    states: Mapping[Run, str]

    def missing(self, group: Group) -> list[Run]:
        """Runs of a group that are to be handed out."""
        return [run for run in group.runs if self.states[run] not in ("done", "out")]

    def pending(self) -> list[list[Job]]:
        """The jobs of every group that lacks runs, each run once, in order of worth."""
        taken: set[Run] = set()
        found = []
        for group in self.plan.groups:
            missing = [run for run in self.missing(group) if run not in taken]
            if missing:
                taken.update(missing)
                found.append(jobs_of(group, missing, self.plan, self.identities))
        return found

    def table(self, cores: int) -> list[dict[str, object]]:
        """A line for each item of the plan; minutes are at least those a GPU machine of so many cores needs."""
        lines = []
        for item in dict.fromkeys(group.item for group in self.plan.groups):
            runs = list(dict.fromkeys(run for each in self.plan.groups if each.item == item for run in each.runs))
            counts = Counter(self.states[run] for run in runs)
            # A run that an item before this one lacks too is counted for both.
            own = Plan(tuple(each for each in self.plan.groups if each.item == item), self.plan.rates)
            jobs = [job for group in Standing(own, self.identities, self.states).pending() for job in group]
            busy = max(sum(job.seconds * job.gpu for job in jobs), sum(job.seconds * job.cores for job in jobs) / cores)
            lines.append(
                {"item": item, "runs": len(runs), **{state: counts[state] for state in STATES}}
                | {"gpu_minutes": round(busy / 60)}
            )
        return lines


def stand(plan: Plan, identities: Mapping[Run, str], results: Path, now: datetime) -> Standing:
    """Where everything stands now."""
    unknown = [run for run in plan.runs if run not in identities]
    if unknown:
        raise QueueError(f"no identity of {unknown[0]} and {len(unknown) - 1} more. Run `evidence/queue identities`.")
    files = read_results(results)
    done = {identity for runs in files.values() for identity, rows in runs.items() if rows.done}
    cut = {identity for runs in files.values() for identity in runs} - done
    ledger = read_ledger(results)
    out = {identity for batch in ledger if batch.is_out(now) for identity in batch.runs.split()}
    handed = {identity for batch in ledger for identity in batch.runs.split()}
    credited = credits(results, plan.runs)
    states = {}
    for run in plan.runs:
        identity = identities[run]
        if run in credited or identity in done:
            states[run] = "done"
        else:
            ranked = (("out", out), ("partly", cut), ("lost", handed))
            states[run] = next((state for state, known in ranked if identity in known), "wanted")
    return Standing(plan, identities, states)
