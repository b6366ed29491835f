"""The command line of the queue."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from evidence.batch import make_batch
from evidence.collect import collect
from evidence.identity import TABLE, read_identities
from evidence.packing import Room
from evidence.plan import HERE, QueueError, read_plan
from evidence.records import now
from evidence.standing import STATES, Standing, stand

ROOT = HERE.parent
RESULTS = ROOT / "results"
EXAMPLES = """
examples:
  evidence/queue status
  evidence/queue next --minutes 28 --cores 16 --gpu
  evidence/queue collect evidence.tar.gz
  evidence/queue identities          after a change of the plan, of a preset or of ARITHMETIC

evidence/README.md says how a lease is spent.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """One command; 2 where something is refused, with the reason on stderr."""
    options = _parser().parse_args(argv)
    try:
        {"status": _status, "next": _next, "collect": _collect, "identities": _identities}[options.command](options)
    except QueueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="evidence/queue", description=__doc__, epilog=EXAMPLES, formatter_class=shape)
    commands = parser.add_subparsers(dest="command", required=True, metavar="status|next|collect|identities")
    status = commands.add_parser("status", help="what is wanted, done, partly done and lost, item by item")
    status.add_argument("--json", action="store_true", help="every run with its state, as JSON")
    fresh = commands.add_parser("next", help="write the next batch, and its line into the ledger")
    fresh.add_argument("--minutes", type=float, default=28, help="of the lease from `batch.sh start` on; default 28")
    fresh.add_argument("--cores", type=int, default=16, help="default 16")
    fresh.add_argument("--gpu", action="store_true", help="there is a GPU")
    fresh.add_argument("--commit", default="HEAD", help="what the runs are run from; default HEAD")
    fresh.add_argument("--to", type=Path, default=ROOT / ".offline" / "batch", help="folder; default .offline/batch")
    back = commands.add_parser("collect", help="merge what came back into results/, once")
    back.add_argument("archive", type=Path)
    commands.add_parser("identities", help="write identities.csv anew; needs the package")
    return parser


def _standing() -> Standing:
    return stand(read_plan(), read_identities(), RESULTS, now())


def _status(options: argparse.Namespace) -> None:
    standing = _standing()
    table = standing.table(16)
    if options.json:
        runs = [
            {**vars(run), "identity": standing.identities[run], "state": standing.states[run]}
            for run in standing.plan.runs
        ]
        print(json.dumps({"items": table, "runs": runs}, indent=1))
        return
    print(f"{'item':12}{'runs':>6}" + "".join(f"{state:>8}" for state in STATES) + f"{'GPU min':>9}")
    for line in table:
        counts = "".join(f"{line[state]:8}" for state in STATES)
        print(f"{line['item']:12}{line['runs']:6}{counts}{line['gpu_minutes']:9}")


def _next(options: argparse.Namespace) -> None:
    asked = Room(options.cores, 1.0 if options.gpu else 0.0, 60 * options.minutes)
    batch = make_batch(_standing(), options.to, RESULTS, asked, options.commit, now())
    jobs = json.loads((options.to / "manifest.json").read_text(encoding="utf-8"))["jobs"]
    for job in sorted(jobs, key=lambda each: each["start"]):
        print(f"{job['start']:5.0f} - {job['end']:5.0f} s  {job['cores']:2} cores  {job['gpu']:.2f} GPU  {job['name']}")
    print(f"batch {batch.id}, {len(batch.runs.split())} runs, in {options.to}")


def _collect(options: argparse.Namespace) -> None:
    batch = collect(options.archive, RESULTS)
    print(f"batch {batch.id}: {batch.outcome}")


def _identities(options: argparse.Namespace) -> None:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "evidence.package", "identities"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise QueueError(f"the package cannot resolve the plan: {done.stderr.decode().strip()}")
    fresh = TABLE.with_name(f".{TABLE.name}.new")
    fresh.write_bytes(done.stdout)
    fresh.replace(TABLE)
