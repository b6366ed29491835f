"""`intrigue resume DIR [--steps N]`: one run, or all runs of a folder of several seeds."""

from __future__ import annotations

import sys
from typing import Annotated

import tyro

from intrigue.cli.finetune import ended, mean_sentence, sentence
from intrigue.cli.options import Plugins, Quiet, RunDir, WholeOrNone, call, shown
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
    from intrigue.run.driver import resume as take_up
    from intrigue.run.multi_seed import resume_seeds
    from intrigue.run.seed_folder import seed_runs

    for path in plugin:
        add_plugin(path)
    several = bool(seed_runs(folder))
    runs = resume_seeds(folder, steps=steps, quiet=quiet) if several else [take_up(folder, steps=steps, quiet=quiet)]
    for run in runs:
        sys.stdout.write(f"{shown(run.path)} is at step {run.step} of {run.config.run.steps}\n")
    scores = [done for run in runs if (done := ended(run)) is not None]
    for done in scores:
        seed = f"seed {done.run.config.run.seed}: " if several else ""
        sys.stdout.write(f"{seed}{sentence(done)}\n")
    if several and len(scores) == len(runs):
        sys.stdout.write(f"{mean_sentence(scores)}\n")
    return 0


def main(argv: list[str]) -> int:
    """Entry point."""
    return call(resume, "resume", argv)
