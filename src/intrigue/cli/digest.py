"""`intrigue digest DIR`."""

from __future__ import annotations

import sys

from intrigue.cli.options import RunDir, run_command


def digest(folder: RunDir) -> int:
    """Print one SHA-256 of the run's whole training state: equal digests mean equal bits, however the run got there.

    Of a folder of seeds it prints one for each, with the run's path.

    Examples:
      intrigue digest runs/maze
    """
    from intrigue.run.checkpoint import digest as state_digest
    from intrigue.run.folder import open_run
    from intrigue.run.seed_folder import seed_runs

    seeds = seed_runs(folder)
    lines = [f"{state_digest(open_run(path).checkpoints)}  {path}" for path in seeds]
    sys.stdout.write("\n".join(lines or [state_digest(open_run(folder).checkpoints)]) + "\n")
    return 0


def main(argv: list[str]) -> int:
    """Entry point."""
    return run_command(digest, "digest", argv)
