"""What came back, merged into the results exactly once.

    a complete run     takes the place of one that was cut; is refused where another complete one has other rows
    a cut run          takes the place of a shorter cut one
    everything else    changes nothing

All files are computed before the first is written, complete runs are written before cut ones are taken out, and the
ledger comes last: the same command completes after a kill, and does nothing the second time.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evidence.plan import QueueError
from evidence.records import (
    Batch,
    Rows,
    parse_rows,
    read_ledger,
    read_results,
    with_outcome,
    write_ledger,
    write_results,
)

CUT = "-cut"
LABELS = ("commit", "batch", "outcome")


def collect(archive: Path, results: Path) -> Batch:
    """Merge an archive and give back the batch's line of the ledger."""
    manifest, tables = read_archive(archive)
    wanted = {run["identity"] for job in manifest["jobs"] for run in job["runs"]}
    before = read_results(results)
    files = {name: dict(runs) for name, runs in before.items()}
    for name, runs in tables.items():
        complete, cut = files.setdefault(name, {}), files.setdefault(name + CUT, {})
        for identity, rows in runs.items():
            if identity not in wanted:
                raise QueueError(
                    f"{rows.source}: {' '.join(rows.key)} is {identity}, which batch {manifest['id']} was not asked "
                    "for: its settings are not those planned. Accepted: identities of the manifest. Compare its "
                    "config.json in the archive with the plan."
                )
            _merge(identity, rows, complete, cut)
    order = sorted(files, key=lambda name: name.endswith(CUT))
    for name in order:
        if files[name] != before.get(name, {}):
            write_results(results, name, files[name].values())
    batch = Batch(
        manifest["id"], manifest["date"], manifest["commit"], str(manifest["minutes"]), " ".join(sorted(wanted)),
        _outcome(wanted, files),
    )  # fmt: skip
    ledger = read_ledger(results)
    after = with_outcome(ledger, batch)
    if after != ledger:
        write_ledger(results, after)
    return batch


def read_archive(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, Rows]]]:
    """The manifest of a batch, and its rows by file and identity."""
    try:
        with tarfile.open(path) as tar:
            members = {member.name.removeprefix("./"): member for member in tar.getmembers() if member.isfile()}
            texts = {
                name: tar.extractfile(member).read().decode()  # type: ignore[union-attr]
                for name, member in members.items()
                if name == "manifest.json" or (name.startswith("rows/") and name.endswith(".csv"))
            }
        manifest = json.loads(texts.pop("manifest.json"))
    except (OSError, EOFError, tarfile.TarError, KeyError, ValueError) as error:
        raise QueueError(f"{path} is no archive of a batch: {error}. Accepted: what `batch.sh wait` copied.") from error
    return manifest, {Path(name).stem: parse_rows(text, f"{path.name}:{name}") for name, text in texts.items()}


def _merge(identity: str, rows: Rows, complete: dict[str, Rows], cut: dict[str, Rows]) -> None:
    for other, old in complete.items():
        if other != identity and old.key == rows.key:
            raise QueueError(
                f"{' '.join(rows.key)} is {other} in {old.source} and {identity} in {rows.source}: two runs by one "
                "name. Accepted: one of each name. Take the old rows out of the file, and collect again."
            )
    if identity in complete:
        old = complete[identity]
        if rows.done and _measured(old) != _measured(rows):
            raise QueueError(
                f"{' '.join(rows.key)} ({identity}) is complete in {old.source}, batch {old.cell('batch')}, and in "
                f"{rows.source}, batch {rows.cell('batch')}, with other rows. Accepted: one result of each run. If "
                "both are right, the settings do not say all that matters: raise evidence/ARITHMETIC."
            )
    elif rows.done:
        complete[identity] = rows
    elif identity not in cut or rows.length > cut[identity].length:
        cut[identity] = rows
    if identity in complete:
        cut.pop(identity, None)


def _measured(rows: Rows) -> list[tuple[str, ...]]:
    kept = [place for place, name in enumerate(rows.columns) if name not in LABELS]
    return [tuple(line[place] for place in kept) for line in rows.lines]


def _outcome(wanted: set[str], files: Mapping[str, Mapping[str, Rows]]) -> str:
    there = {name: wanted & runs.keys() for name, runs in files.items()}
    done = set().union(*(found for name, found in there.items() if not name.endswith(CUT)))
    cut = set().union(*(found for name, found in there.items() if name.endswith(CUT))) - done
    return f"{len(done)} done, {len(cut)} cut, {len(wanted - done - cut)} lost"
