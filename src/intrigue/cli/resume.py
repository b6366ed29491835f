"""`intrigue resume DIR [--steps N]`: one run, or all runs of a folder of several seeds."""

from __future__ import annotations

import sys
from typing import Annotated

import tyro

from intrigue.cli.shell import Plugins, Quiet, RunDir, call, shown
from intrigue.plugins import add_plugin


def resume(
    folder: RunDir,
    steps: Annotated[int | None, tyro.conf.arg(metavar="N", help="a new last step; default: as configured")] = None,
    quiet: Quiet = False,
    plugin: Plugins = (),
) -> int:
    """Go on exactly where a run stopped: same bits on the same machine as if it had never stopped.

    DIR may also be what `intrigue train --seeds` made: then all its seeds go on. Those that are behind the others
    (a crash between two saves, a damaged checkpoint) catch up first.

    Examples:
      intrigue resume runs/maze
      intrigue resume runs/maze --steps 500000
      intrigue resume runs/walker-of-8-seeds
    """
    from intrigue.run.driver import resume as take_up
    from intrigue.run.seed_folder import seed_runs
    from intrigue.run.several import resume_seeds

    for path in plugin:
        add_plugin(path)
    several = bool(seed_runs(folder))
    runs = resume_seeds(folder, steps=steps, quiet=quiet) if several else [take_up(folder, steps=steps, quiet=quiet)]
    for run in runs:
        sys.stdout.write(f"{shown(run.path)} is at step {run.step} of {run.config.run.steps}\n")
    return 0


def main(argv: list[str]) -> int:
    """Entry point."""
    return call(resume, "resume", argv)
