"""`intrigue resume DIR [--steps N]`: one run, or all runs of a folder of several seeds."""

from __future__ import annotations

import sys
from typing import Annotated

import tyro

from intrigue.cli.finetune import describe_mean, describe_result, finished_finetuning
from intrigue.cli.options import Plugins, Quiet, RunDir, WholeOrNone, relative_path, run_command
from intrigue.config.plugins import add_plugin
from intrigue.errors import ConfigError, Problem


def resume(
    folder: RunDir,
    steps: Annotated[WholeOrNone, tyro.conf.arg(help="a new last step; default: as configured")] = None,
    quiet: Quiet = False,
    plugin: Plugins = (),
) -> int:
    """Go on exactly where a run stopped: same bits on the same machine as if it had never stopped.

    DIR may also be what `intrigue train --seeds` made: then all its seeds go on. Those that are behind the others
    (a crash between two saves, a damaged checkpoint) catch up first. At the end of a fine-tuning its score is printed.

    Examples:
      intrigue resume runs/maze
      intrigue resume runs/maze --steps 500000
      intrigue resume runs/walker-of-8-seeds
    """
    if steps is not None and steps < 1:
        raise ConfigError([Problem("--steps", f"{steps} is out of range; it must be >= 1.")])
    from intrigue.run import driver
    from intrigue.run.seed_folder import seed_runs

    for path in plugin:
        add_plugin(path)
    several = bool(seed_runs(folder))
    if several:
        runs = driver.resume_seeds(folder, steps=steps, quiet=quiet)
    else:
        runs = [driver.resume(folder, steps=steps, quiet=quiet)]
    for run in runs:
        sys.stdout.write(f"{relative_path(run.path)} is at step {run.step} of {run.config.run.steps}\n")
    scores = [done for run in runs if (done := finished_finetuning(run)) is not None]
    for done in scores:
        seed = f"seed {done.run.config.run.seed}: " if several else ""
        sys.stdout.write(f"{seed}{describe_result(done)}\n")
    if several and len(scores) == len(runs):
        sys.stdout.write(f"{describe_mean(scores)}\n")
    return 0


def main(argv: list[str]) -> int:
    """Entry point."""
    return run_command(resume, "resume", argv)
