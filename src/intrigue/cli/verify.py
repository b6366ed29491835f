"""`intrigue verify DIR`."""

from __future__ import annotations

import json
import sys

from intrigue.cli.shell import Json, RunDir, call
from intrigue.errors import CheckpointError


def verify(folder: RunDir, json_output: Json = False) -> int:
    """Exit 0 only if the run's selected checkpoint is whole: every file there, every byte as it was written.

    Examples:
      intrigue verify runs/maze
    """
    from intrigue.run.checkpoint import verify as check
    from intrigue.run.folder import open_run

    verdict = check(open_run(folder).checkpoints)
    if json_output:
        fields = {"ok": verdict.ok, "step": verdict.step, "problems": list(verdict.problems)}
        sys.stdout.write(json.dumps(fields) + "\n")
    if not verdict.ok:
        raise CheckpointError(f"{folder}: {'; '.join(verdict.problems)}")
    if not json_output:
        sys.stdout.write(f"{folder}: the checkpoint of step {verdict.step} is whole\n")
    return 0


def main(argv: list[str]) -> int:
    """Entry point."""
    return call(verify, "verify", argv)
