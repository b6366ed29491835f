"""`intrigue verify DIR`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from intrigue.cli.options import Json, RunDir, run_command
from intrigue.errors import CheckpointError


def verify(folder: RunDir, json_output: Json = False) -> int:
    """Exit 0 only if the run's selected checkpoint and all its snapshots are whole: every byte as it was written.

    Of a folder of seeds every run is checked.

    Examples:
      intrigue verify runs/maze
      intrigue verify runs/walker/seed-3
    """
    from intrigue.run.seed_folder import seed_runs

    seeds = seed_runs(folder)
    verdicts = {path: _check_seed(path) for path in seeds} or {folder: _check_run(folder)}
    damaged = [f"{path}: {'; '.join(fields['problems'])}" for path, fields in verdicts.items() if not fields["ok"]]
    if json_output:
        each = [{"run": str(path), **fields} for path, fields in verdicts.items()]
        sys.stdout.write(json.dumps({"ok": not damaged, "runs": each} if seeds else verdicts[folder]) + "\n")
    else:
        for path, fields in verdicts.items():
            if fields["ok"]:
                sys.stdout.write(f"{path}: the checkpoint of step {fields['step']} is whole\n")
    if damaged:
        raise CheckpointError("\n".join(damaged))
    return 0


def _check_seed(folder: Path) -> dict[str, Any]:
    """The verdict on one of several; one without checkpoints does not keep the others from being checked."""
    try:
        return _check_run(folder)
    except CheckpointError as error:
        return {"ok": False, "step": None, "problems": [str(error)]}


def _check_run(folder: Path) -> dict[str, Any]:
    from intrigue.run.checkpoint import verify as check
    from intrigue.run.checkpoint.snapshot import find_problems
    from intrigue.run.folder import open_run

    run = open_run(folder)
    verdict = check(run.checkpoints)
    problems = [*verdict.problems, *find_problems(run)]
    return {"ok": not problems, "step": verdict.step, "problems": problems}


def main(argv: list[str]) -> int:
    """Entry point."""
    return run_command(verify, "verify", argv)
