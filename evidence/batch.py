"""A batch for one lease: its runs, the source they run from, and the script that starts them, in one folder.

    manifest.json   id, commit, room and jobs, in order of worth, with the second each is planned to start at
    source.tar      `git archive` of the pinned commit; nothing of the working tree
    batch.sh        start, wait

The folder appears whole. The ledger gets its line afterwards: a kill before that hands nothing out, and the same
command makes the same batch again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from evidence.identity import TABLE
from evidence.packing import Placed, Room, pack
from evidence.plan import HERE, QueueError, Run
from evidence.records import OUT, Batch, read_ledger, stamp, with_outcome, write_ledger
from evidence.standing import Standing

BEFORE = 30  # seconds until the first run starts: unpacking, and a look whether everything imports
SPARE = 0.3  # of the lease is packed once more, for machines that are faster than the rates
AFTER = 30  # seconds for the last rows and the last archive
FIRST_CHECKED = {"atari": "atari/Breakout", "dmc": "dmc/walker"}  # an environment of each family is tried first


def make_batch(standing: Standing, folder: Path, results: Path, asked: Room, rev: str, moment: datetime) -> Batch:
    """Write the next batch and its line of the ledger; `asked.seconds` are the lease's."""
    root = HERE.parent
    commit = _git(root, "rev-parse", "--verify", f"{rev}^{{commit}}").decode().strip()
    room = Room(asked.cores, asked.gpu, asked.seconds - BEFORE - AFTER)
    placed = pack(standing.pending(), room)
    if not placed:
        raise QueueError(
            f"nothing of what is missing fits {asked.seconds / 60:g} minutes on {asked.cores} cores with "
            f"{asked.gpu:g} GPUs. Accepted: a longer lease, more cores, --gpu. See `evidence/queue status`."
        )
    names = {each.job.name for each in placed}
    rest = [group for group in standing.pending() if group[0].name not in names]
    spare = pack(rest, replace(room, seconds=room.seconds * SPARE))
    placed += [Placed(each.job, room.seconds, room.seconds + each.job.seconds) for each in spare]
    _same_identities(root, commit, placed)
    ledger = read_ledger(results)
    runs = " ".join(sorted(run["identity"] for each in placed for run in each.job.runs))
    minutes = f"{asked.seconds / 60:g}"
    batch = Batch(f"{len(ledger) + 1}-{commit[:7]}", stamp(moment), commit, minutes, runs, OUT)
    manifest = {
        "id": batch.id,
        "date": batch.date,
        "commit": commit,
        "minutes": minutes,
        "room": asdict(room),
        "check": sorted({_first(each.job.argv) for each in placed} - {""}),
        "jobs": [{**asdict(each.job), "start": round(each.start), "end": round(each.end)} for each in placed],
    }
    _write(folder, manifest, _git(root, "archive", "--format=tar", commit, "src", "evidence"))
    write_ledger(results, with_outcome(ledger, batch))
    return batch


def _first(argv: Sequence[str]) -> str:
    family = argv[1].partition("/")[0] if argv[0] == "train" else ""
    return FIRST_CHECKED.get(family, argv[1] if family else "")


def _write(folder: Path, manifest: dict[str, Any], source: bytes) -> None:
    fresh, old = (folder.with_name(f".{folder.name}.{word}") for word in ("new", "old"))
    for path in (fresh, old):
        shutil.rmtree(path, ignore_errors=True)
    fresh.mkdir(parents=True)
    (fresh / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    (fresh / "source.tar").write_bytes(source)
    shutil.copy(HERE / "batch.sh", fresh / "batch.sh")
    if folder.exists():
        os.replace(folder, old)
    os.replace(fresh, folder)
    shutil.rmtree(old, ignore_errors=True)


def _same_identities(root: Path, commit: str, placed: Sequence[Placed]) -> None:
    """The pinned commit must mean by each run what the plan means by it."""
    try:
        there = _git(root, "show", f"{commit}:evidence/{TABLE.name}").decode()
    except QueueError as error:
        raise QueueError(f"commit {commit[:7]} has no queue to run a batch with. Accepted: a later one.") from error
    for each in placed:
        for run in each.job.runs:
            if run["identity"] not in there:
                named = Run(*(run[key] for key in ("env", "preset", "changes", "seed", "pretrained", "steps")))
                raise QueueError(
                    f"{named} is {run['identity']} here, and commit {commit[:7]} does not know it. Accepted: a commit "
                    "whose evidence/identities.csv has every run of the batch. Commit the plan, or give --commit."
                )


def _git(root: Path, *words: str) -> bytes:
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, check=False)
    if done.returncode:
        raise QueueError(f"git {' '.join(words)}: {done.stderr.decode().strip()}")
    return done.stdout
