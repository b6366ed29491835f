"""What a run began with, besides its settings: the snapshot it was fine-tuned from, or episodes in its replay.

    provenance.json    finetuned_from: run, snapshot, digest       replay_from: folder, of, seal
    arm                a snapshot of as many steps, of a run of the same settings (its seed apart); the same episodes
    label              from snapshot 3000 of walker · with the replay of walker at step 3000 · from scratch

Provenance names a folder without its path. It is searched for next to the run, and used only if its digest is the one
that was recorded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Literal

from intrigue.config.run import BOOKKEEPING, flatten_json, resolve
from intrigue.datasets.sealed_folder import open_sealed
from intrigue.errors import IntrigueError
from intrigue.run import disk
from intrigue.run.checkpoint.manifest import MANIFEST, SIZE_LIMIT, parse
from intrigue.run.checkpoint.verify import list_checkpoints, step_and_generation
from intrigue.run.folder import RunFolder, read_config
from intrigue.run.names import parse_seed_name

DATA = "data"  # where the help of `intrigue export` puts episodes


@dataclass(frozen=True)
class Origin:
    """What a run began with; `place` is None where it is not found."""

    kind: Literal["snapshot", "replay", "unknown"]
    folder: str = ""  # its name in provenance.json
    run: str = ""  # of which run it is
    step: int = 0
    digest: str = ""  # of its content
    place: Path | None = None
    settings: str = ""  # digest of the pre-training's settings without its seed; empty where it is not found

    @property
    def key(self) -> tuple[str, int, str]:
        """Equal for what may stand in one arm."""
        return (self.kind, self.step, self.settings if self.kind == "snapshot" else self.digest)


def read_origin(path: Path, provenance: Mapping[str, Any]) -> Origin | None:
    """What the run at `path` began with; None for one that began from scratch."""
    if not provenance:
        return Origin("unknown")
    if "finetuned_from" in provenance:
        return _read_snapshot_origin(path, provenance["finetuned_from"])
    if "replay_from" in provenance:
        return _read_replay_origin(path, provenance["replay_from"])
    return None


def describe_origin(origins: Sequence[Origin | None], idle: bool) -> str:
    """What the runs of an arm began with, in words; empty where nothing need be said.

    `idle` settings are those of a fine-tuning, so a start from scratch is worth stating.
    """
    first = origins[0]
    if first is None:
        return "from scratch" if idle else ""
    names = list(dict.fromkeys(origin.run for origin in origins if origin is not None))
    match first.kind:
        case "snapshot":
            if len(names) == 1:
                return f"from snapshot {first.step} of {names[0]}"
            # Whether one that is not found had the same settings is a guess, and a reader should know.
            lost = len({origin.run for origin in origins if origin is not None and origin.place is None})
            return f"from snapshot {first.step} of {len(names)} pre-trainings" + (f", {lost} not found" if lost else "")
        case "replay":
            return f"with the replay of {names[0]}" + (f" at step {first.step}" if first.step else "")
        case "unknown":
            return "origin unknown"


def _read_snapshot_origin(path: Path, fields: Any) -> Origin:
    folder, step, digest = (_get_field(fields, name) for name in ("run", "snapshot", "digest"))
    if not isinstance(folder, str) or not isinstance(step, int) or not isinstance(digest, str):
        return Origin("unknown")
    for place in _candidate_places(path, folder):
        if _snapshot_digest(RunFolder(place), step) == digest:
            return Origin("snapshot", folder, _run_name(place), step, digest, place, _digest_settings(RunFolder(place)))
    return Origin("snapshot", folder, _run_name(PurePath(folder)), step, digest)


def _read_replay_origin(path: Path, fields: Any) -> Origin:
    folder, of, seal = (_get_field(fields, name) for name in ("folder", "of", "seal"))
    if not isinstance(folder, str):
        return Origin("unknown")
    run, step, digest = (_get_field(of, name) for name in ("run", "step", "digest"))
    sizes = [_get_field(fields, name) for name in ("episodes", "transitions")]
    return Origin(
        "replay",
        folder,
        run if isinstance(run, str) else folder,
        step if isinstance(step, int) else 0,
        # The same episodes may be exported in two formats; unsealed ones have only a name and a size.
        digest if isinstance(digest, str) else seal if isinstance(seal, str) else f"{folder} {sizes}",
        next((place for place in _candidate_places(path, folder) if seal and _read_seal(place) == seal), None),
    )


def _get_field(fields: Any, name: str) -> Any:
    return fields.get(name) if isinstance(fields, Mapping) else None


def _candidate_places(path: Path, name: str) -> list[Path]:
    """Where a folder of this name may lie: by the run, by the folder of seeds it is in, or with the data there."""
    parts = PurePath(name).parts
    if not parts or PurePath(name).is_absolute() or ".." in parts:
        return []
    around = Path(os.path.abspath(path)).parents[:2]
    places = [base / inner / name for base in around for inner in ("", DATA)]
    return [place if path.is_absolute() else Path(os.path.relpath(place)) for place in places]


def _run_name(path: PurePath) -> str:
    """The name of a run; a seed's is that of the folder of seeds."""
    return path.parent.name or path.name if parse_seed_name(path.name) is not None else path.name


def _snapshot_digest(run: RunFolder, step: int) -> str:
    try:
        found = [path for path in list_checkpoints(run.snapshots) if step_and_generation(path)[0] == step]
        return parse(disk.read_whole(found[-1] / MANIFEST, SIZE_LIMIT)).content_digest() if found else ""
    except (IntrigueError, OSError, ValueError):
        return ""


def _digest_settings(run: RunFolder) -> str:
    try:
        return resolve(flatten_json(read_config(run))).digest(without=(*BOOKKEEPING, "seed"))
    except IntrigueError:
        return ""


def _read_seal(folder: Path) -> str:
    try:
        about = open_sealed(folder).about
    except (IntrigueError, OSError, ValueError):
        return ""
    return "" if about is None else str(about["seal"])
