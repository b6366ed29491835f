"""`intrigue export DIR --to FOLDER [--format exorl|minari]`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

import tyro

from intrigue.cli.options import Json, RunDir, relative_path, run_command


def export(
    folder: RunDir,
    to: Annotated[Path, tyro.conf.arg(metavar="FOLDER", help="a new folder for the episodes")],
    format: Annotated[
        Literal["exorl", "minari"], tyro.conf.arg(help="ExORL's .npz files, or a Minari dataset (extra `minari`)")
    ] = "exorl",
    json_output: Json = False,
) -> int:
    """Write the whole episodes in a run's replay to a folder. No environment is started.

    `intrigue train --replay-from FOLDER` begins a run with them, and `intrigue.datasets.load.load_episodes` reads
    them. A Minari dataset is named as its folder, which must end in a version.

    Examples:
      intrigue export runs/walker --to data/walker
      intrigue export runs/walker --to data/walker-v0 --format minari
    """
    from intrigue.datasets.export import export_run

    done = export_run(folder, to, format, on_skip=_warn)
    episodes, transitions = len(done.recordings), done.recordings.transitions
    if json_output:
        fields = {
            "folder": str(to),
            "format": format,
            "step": done.origin["step"],
            "environments": done.origin["environments"],
            "episodes": episodes,
            "transitions": transitions,
            "left_out": done.left_out,
        }
        sys.stdout.write(json.dumps(fields) + "\n")
        return 0
    sys.stdout.write(f"{relative_path(to)}\n")
    count = int(done.origin["environments"])
    stepped = f" of {count} environments" if count > 1 else ""
    sys.stderr.write(
        f"{episodes} episodes{stepped}, {transitions} transitions; left out {done.left_out} of episodes without a "
        "beginning or an end\n"
    )
    return 0


def _warn(text: str) -> None:
    sys.stderr.write(f"warning: {text}\n")


def main(argv: list[str]) -> int:
    """Entry point."""
    return run_command(export, "export", argv)
