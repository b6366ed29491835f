"""URLB's second phase of several seeds at once: every pre-trained seed learns the task, each from its own snapshot.

runs/walker/seed-0, …    ──►    runs/walker__walker_run__2000000/seed-0, …
"""

from __future__ import annotations

import os
from pathlib import Path

from intrigue.errors import ConfigError, Problem
from intrigue.run.finetune import (
    EVAL_EVERY,
    N_STEP,
    STEPS,
    Finetuned,
    changes_of,
    planned,
    scored,
    short_task,
    whole_path,
)
from intrigue.run.multi_seed import Plan, start_seeds
from intrigue.run.seed_folder import seed_runs


def finetune_seeds(
    folder: Path,
    task: str,
    *,
    mark: int | None = None,
    steps: int = STEPS,
    n_step: int = N_STEP,
    eval_every: int = EVAL_EVERY,
    device: str = "auto",
    out: Path | None = None,
    quiet: bool = False,
) -> list[Finetuned]:
    """Fine-tune all runs of a folder of seeds, from their snapshots of `mark` steps or their newest, seed by seed.

    Raises:
        ConfigError: their newest snapshots are of different steps, or two are of one seed.
    """
    folder = Path(os.path.abspath(folder))
    changes = changes_of(steps, n_step, eval_every, device)
    plans: dict[int, Plan] = {}
    marks: dict[int, int] = {}
    for each in seed_runs(folder):
        before = whole_path(each)
        given, cfg, prepare = planned(before, task, mark, changes, origin=f"{folder.name}/{before.path.name}")
        seed = cfg.run.seed
        if seed in plans:
            raise ConfigError(f"{folder} holds two runs of seed {seed}; move one elsewhere.")
        plans[seed], marks[seed] = Plan(cfg, prepare), given.mark
    newest = sorted(set(marks.values()))
    if len(newest) > 1:
        text = f"the seeds' newest snapshots differ: {', '.join(map(str, newest))}. Name one that all have."
        raise ConfigError([Problem("--snapshot", text)])
    short = short_task(next(iter(plans.values())).cfg)
    place = out or folder.parent / f"{folder.name}__{short}__{newest[0]}"
    runs = start_seeds([plans[seed] for seed in sorted(plans)], out=place, quiet=quiet)
    return [scored(run, newest[0]) for run in runs]
