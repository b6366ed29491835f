"""`intrigue resume DIR [--steps N]`."""

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

    Examples:
      intrigue resume runs/maze
      intrigue resume runs/maze --steps 500000
    """
    from intrigue.run.driver import resume as take_up

    for path in plugin:
        add_plugin(path)
    run = take_up(folder, steps=steps, quiet=quiet)
    sys.stdout.write(f"{shown(run.path)} is at step {run.step} of {run.config.run.steps}\n")
    return 0


def main(argv: list[str]) -> int:
    """Entry point."""
    return call(resume, "resume", argv)
