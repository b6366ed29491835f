"""`intrigue verify DIR`."""

from __future__ import annotations

import json
import sys

from intrigue.cli.shell import Json, RunDir, call
from intrigue.errors import CheckpointError


def verify(folder: RunDir, json_output: Json = False) -> int:
    """Exit 0 only if the run's selected checkpoint and all its snapshots are whole: every byte as it was written.

    Examples:
      intrigue verify runs/maze
    """
    from intrigue.run.checkpoint import verify as check
    from intrigue.run.folder import open_run
    from intrigue.run.snapshot import problems_of

    run = open_run(folder)
    verdict = check(run.checkpoints)
    problems = [*verdict.problems, *problems_of(run)]
    if json_output:
        fields = {"ok": not problems, "step": verdict.step, "problems": problems}
        sys.stdout.write(json.dumps(fields) + "\n")
    if problems:
        raise CheckpointError(f"{folder}: {'; '.join(problems)}")
    if not json_output:
        sys.stdout.write(f"{folder}: the checkpoint of step {verdict.step} is whole\n")
    return 0


def main(argv: list[str]) -> int:
    """Entry point."""
    return call(verify, "verify", argv)
