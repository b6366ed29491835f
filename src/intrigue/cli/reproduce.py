"""`intrigue reproduce STUDY [--budget B] [--out DIR]`."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import tyro

from intrigue.cli.shell import Json, call


def reproduce(
    study: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="STUDY", help="see `intrigue list studies`")],
    budget: Annotated[Literal["smoke", "hour", "full"], tyro.conf.arg(help="how much to spend")] = "smoke",
    out: Annotated[
        Path | None,
        tyro.conf.arg(metavar="DIR", help="where its runs and tables go; default runs/studies/STUDY-BUDGET"),
    ] = None,
    jobs: Annotated[int, tyro.conf.arg(metavar="N", help="runs at a time; 0: one per core")] = 0,
    json_output: Json = False,
) -> int:
    """Run a study and print the paper's value beside ours, with seeds, interval and verdict.

    Finished runs are not repeated: the same command goes on where it was stopped.

    Examples:
      intrigue reproduce fig1
      intrigue reproduce quickstart --out runs/maze
    """
    from intrigue.studies.engine import run_study
    from intrigue.studies.registry import STUDIES
    from intrigue.studies.show import show

    plan = STUDIES.get(study).cls()
    place = out if out is not None else Path("runs") / "studies" / f"{study}-{budget}"
    workers = jobs if jobs > 0 else os.cpu_count() or 1
    conclusion = run_study(plan, plan.budgets[budget], place, workers, lambda text: _say(text))
    if json_output:
        fields = {
            "study": study,
            "budget": budget,
            "headline": conclusion.headline,
            "rows": [asdict(row) for row in conclusion.rows],
            "words": list(conclusion.words),
            "files": [str(path) for path in conclusion.files],
        }
        sys.stdout.write(json.dumps(fields, indent=2) + "\n")
    else:
        show(plan.title, budget, conclusion)
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main(argv: list[str]) -> int:
    """Entry point."""
    return call(reproduce, "reproduce", argv)
