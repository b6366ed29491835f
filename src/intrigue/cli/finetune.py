"""`intrigue finetune DIR --task T [--snapshot N] [--steps N]`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

import tyro

from intrigue.cli.shell import Json, Plugins, Quiet, RunDir, call, shown
from intrigue.errors import ConfigError, Problem
from intrigue.plugins import add_plugin


def finetune(
    folder: RunDir,
    task: Annotated[str, tyro.conf.arg(metavar="TASK", help="a task of the domain trained in: walker_run")],
    snapshot: Annotated[int | None, tyro.conf.arg(metavar="N", help="which, by its steps; default: the newest")] = None,
    steps: Annotated[int, tyro.conf.arg(metavar="N", help="agent steps of the task")] = 100_000,
    n_step: Annotated[int, tyro.conf.arg(metavar="N", help="steps in a target")] = 3,
    seed: Annotated[int | None, tyro.conf.arg(metavar="N", help="default: the pre-training's")] = None,
    device: Annotated[
        Literal["auto", "cpu", "cuda"], tyro.conf.arg(help="auto is the GPU where there is one")
    ] = "auto",
    out: Annotated[
        Path | None, tyro.conf.arg(metavar="DIR", help="the new run's folder; default: DIR__TASK__SNAPSHOT__SEED")
    ] = None,
    quiet: Quiet = False,
    json_output: Json = False,
    plugin: Plugins = (),
) -> int:
    """Fine-tune a pre-trained run on a task with its reward, and print the score.

    Of the snapshot the actor and the critic's first layer are copied, as in the Unsupervised RL Benchmark. The score
    is the mean of ten greedy episodes after the last step; eval.csv has one row for every 10,000 steps before.

    Examples:
      intrigue finetune runs/walker --task walker_run
      intrigue finetune runs/walker --task walker_flip --snapshot 500000 --seed 3
    """
    numbers = {"--steps": steps, "--n-step": n_step, "--snapshot": snapshot}
    problems = [
        Problem(name, f"{number} is out of range; it must be >= 1.")
        for name, number in numbers.items()
        if number is not None and number < 1
    ]
    if problems:
        raise ConfigError(problems)
    for path in plugin:
        add_plugin(path)
    from intrigue.finetune import finetune as run

    done = run(folder, task, mark=snapshot, steps=steps, n_step=n_step, seed=seed, device=device, out=out, quiet=quiet)
    if json_output:
        fields = {
            "run": str(done.run.path),
            "task": done.task,
            "snapshot": done.mark,
            "step": done.run.step,
            "episodes": done.episodes,
            "return_mean": done.score,
            "return_std": done.spread,
            "expert": done.expert,
            "normalized": done.normalized,
        }
        sys.stdout.write(json.dumps(fields) + "\n")
        return 0
    share = "" if done.expert is None else f", {done.normalized:.3f} of the expert's {done.expert:g}"
    sys.stdout.write(
        f"{shown(done.run.path)}\n{done.task} after {done.run.step} steps from snapshot {done.mark}: "
        f"return {done.score:.4g} ± {done.spread:.4g} over {done.episodes} episodes{share}\n"
    )
    return 0


def main(argv: list[str]) -> int:
    """Entry point."""
    return call(finetune, "finetune", argv)
