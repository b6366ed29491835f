"""The commands of a group: one that trains, and one for each task that is fine-tuned from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from evidence.packing import Job
from evidence.plan import Group, Plan, Rate, Run

NEVER = str(10**9)  # steps between checkpoints: a lease keeps none, and writing them takes time
EVAL_EVERY = "50000"  # steps between the evaluations of a task: each takes ten episodes


def jobs_of(group: Group, missing: list[Run], plan: Plan, identities: Mapping[Run, str]) -> list[Job]:
    """The jobs that give the missing runs of a group."""
    seeds = sorted({run.seed for run in missing})
    phase = "pretrain" if group.tasks else "train"
    rate = plan.rate(phase, group.env, group.preset)
    name = _name(group, seeds)
    chosen = ["--seed", str(seeds[0])] if len(seeds) == 1 else ["--seeds", ",".join(map(str, seeds))]
    argv = ["train", group.env, "--preset", group.preset, *chosen, "--steps", str(group.steps)]
    argv += ["--checkpoint-every", NEVER, "--out", name, "--quiet"]
    if rate.workers:
        # URLB's presets step one environment unless the plan says more.
        most = int(dict(group.changes).get("pool.num_envs", 1)) if group.env.startswith("dmc/") else rate.workers
        argv += ["--pool.workers", str(min(rate.workers, most))]
    if group.tasks:
        argv += ["--run.snapshots", str(group.steps)]
    elif group.env.startswith("dmc/"):
        argv += ["--run.eval-every", EVAL_EVERY]
    for key, value in group.changes:
        argv += [f"--{key.replace('_', '-')}", value]
    own = () if group.tasks else tuple(_told(run, name, "", group, identities, seeds) for run in missing)
    first = Job(name, tuple(argv), rate.cores, _share(rate, seeds), _seconds(rate, group.steps), "", own)
    return [first, *_tunings(group, missing, plan, identities, name, seeds)]


def _tunings(
    group: Group, missing: list[Run], plan: Plan, identities: Mapping[Run, str], before: str, seeds: list[int]
) -> list[Job]:
    found = []
    for task in group.tasks:
        runs = [run for run in missing if run.env == task]
        if not runs:
            continue
        rate = plan.rate("finetune", task, group.preset)
        name = f"{before}__{task.partition('/')[2]}"
        argv = ["finetune", before, "--task", task.partition("/")[2], "--steps", str(group.finetune)]
        argv += ["--eval-every", EVAL_EVERY, "--out", name, "--quiet"]
        told = tuple(_told(run, name, before, group, identities, seeds) for run in runs)
        found.append(
            Job(name, tuple(argv), rate.cores, _share(rate, seeds), _seconds(rate, group.finetune), before, told)
        )
    return found


def _told(
    run: Run, name: str, before: str, group: Group, identities: Mapping[Run, str], seeds: list[int]
) -> dict[str, object]:
    """A run for the manifest: what it is, where its folder will be, and the file its rows belong in."""
    below = "" if len(seeds) == 1 else f"/seed-{run.seed}"
    places = {"folder": name + below, "from": before + below if before else ""}
    return {**asdict(run), "identity": identities[run], "results": group.results, **places}


def _name(group: Group, seeds: list[int]) -> str:
    words = [
        group.env.partition("/")[2],
        group.preset,
        *(f"{key.rpartition('.')[2]}={value}" for key, value in group.changes),
    ]
    return "__".join([*words, "-".join(map(str, seeds))]).replace(".", "_")


def _share(rate: Rate, seeds: list[int]) -> float:
    return min(1.0, rate.gpu * len(seeds))


def _seconds(rate: Rate, steps: int) -> float:
    return rate.start_seconds + steps / rate.steps_per_second
