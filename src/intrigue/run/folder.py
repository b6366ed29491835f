"""The run folder: its files, its state, and a run on disk as a value (`Run`).

    runs/<name>/  config.json provenance.json metrics.csv episodes.csv eval.csv checkpoints/ snapshots/ report.html
                  figures/ DONE, and with `run.logging.trackers` tensorboard/, wandb/ or sinks.json

A run is created atomically (`intrigue.run.create`): built as `.<name>.<uuid>.new` in the same parent folder, its first
checkpoint included, and then renamed. A kill at any instant leaves either no run folder or a whole one. Nothing inside
refers to the folder's path, so it can be moved and copied.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intrigue.config.run import RunConfig
from intrigue.errors import CheckpointError, ConfigError
from intrigue.run import atomic, canonical, disk
from intrigue.run.checkpoint import digest
from intrigue.run.checkpoint.verify import list_checkpoints
from intrigue.run.logging.csv_files import read_episodes, read_metrics
from intrigue.run.names import parse_seed_name, seed_folder_name

JSON_LIMIT = 16 * 2**20  # bytes of config.json and the like; ours, far above any real one


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The paths of everything in a run folder."""

    path: Path

    @property
    def config(self) -> Path:
        """Every resolved setting."""
        return self.path / "config.json"

    @property
    def provenance(self) -> Path:
        """Versions, commit, host, device, seed."""
        return self.path / "provenance.json"

    @property
    def metrics(self) -> Path:
        """One row per logged update."""
        return self.path / "metrics.csv"

    @property
    def episodes(self) -> Path:
        """One row per finished episode."""
        return self.path / "episodes.csv"

    @property
    def evaluations(self) -> Path:
        """One row per evaluation."""
        return self.path / "eval.csv"

    @property
    def snapshots(self) -> Path:
        """Weights kept for fine-tuning (`intrigue.run.checkpoint.snapshot`)."""
        return self.path / "snapshots"

    @property
    def checkpoints(self) -> Path:
        """The folder `intrigue.run.checkpoint` works in."""
        return self.path / "checkpoints"

    @property
    def tensorboard(self) -> Path:
        """TensorBoard's files, if that logger is used."""
        return self.path / "tensorboard"

    @property
    def sinks(self) -> Path:
        """The run's identity with W&B and trackio."""
        return self.path / "sinks.json"

    @property
    def report(self) -> Path:
        """The report page."""
        return self.path / "report.html"

    @property
    def figures(self) -> Path:
        """The report's figures."""
        return self.path / "figures"

    @property
    def finished(self) -> Path:
        """Present when the run reached its last step."""
        return self.path / "DONE"


def open_run(path: Path) -> RunFolder:
    """The run that lives at `path`.

    Raises:
        ConfigError: there is no such folder, or it holds the runs of several seeds.
        CheckpointError: it holds no checkpoints.
    """
    if not os.path.lexists(path):
        raise ConfigError(f"{path} does not exist; give the folder of a run, the one that holds `checkpoints`")
    if not path.is_dir():
        raise ConfigError(f"{path} is not a folder; give the folder of a run, the one that holds `checkpoints`")
    run, seeds = RunFolder(path), _seeds_in(path)
    if seeds and not run.checkpoints.exists():
        raise ConfigError(
            f"{path} holds the runs of several seeds; give one of them: {path / seed_folder_name(min(seeds))}"
        )
    if not run.checkpoints.is_dir() or not list_checkpoints(run.checkpoints):
        raise CheckpointError(
            f"{path} holds no checkpoints, so there is nothing to go on from. Give the folder of a run; "
            "nothing was started from scratch."
        )
    return run


def why_occupied(path: Path) -> str | None:
    """Why no new run can be created at `path`, as an error text; None when it can."""
    try:
        return _describe_obstacle(path)
    except (OSError, ValueError) as error:  # a name too long, a NUL byte, a parent that may not be entered
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return f"{str(path)!r} cannot be the path of a run: {reason}; choose another one with --out"


def _seeds_in(path: Path) -> list[int]:
    return [seed for entry in path.iterdir() if (seed := parse_seed_name(entry.name)) is not None]


def _describe_obstacle(path: Path) -> str | None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(mode):
        return f"{path} is a symbolic link; give a path of its own"
    if not path.is_dir():
        return f"{path} is a file; give the path of a folder that does not exist yet"
    if not any(path.iterdir()):
        return None
    run = RunFolder(path)
    if not run.checkpoints.is_dir() and not run.config.exists():
        if _seeds_in(path):
            return (
                f"{path} already holds runs of several seeds; go on with `intrigue resume {path}`, "
                "or choose another folder with --out"
            )
        return f"{path} holds files that are not a run; give the path of a folder that does not exist yet"
    kind = "a finished run" if run.finished.exists() else "an unfinished run"
    return f"{path} already holds {kind}; go on with `intrigue resume {path}`, or choose another folder with --out"


def write_config(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Replace config.json atomically."""
    _write_json(run.config, config)


def write_provenance(run: RunFolder, provenance: Mapping[str, Any]) -> None:
    """Replace provenance.json atomically."""
    _write_json(run.provenance, provenance)


def read_config(run: RunFolder) -> dict[str, Any]:
    """The settings of a run.

    Raises:
        CheckpointError: config.json is missing or damaged.
    """
    return _read_json(run.config)


def read_provenance(run: RunFolder) -> dict[str, Any]:
    """Where a run came from.

    Raises:
        CheckpointError: provenance.json is missing or damaged.
    """
    return _read_json(run.provenance)


def mark_done(run: RunFolder, step: int, digest: str) -> None:
    """Write the marker of a run that reached its last step, with the digest of its state."""
    _write_json(run.finished, {"step": step, "digest": digest})


def clear_done(run: RunFolder) -> None:
    """Remove the marker: the run continues."""
    with disk.storage_errors(run.finished):
        if os.path.lexists(run.finished):
            disk.unlink(run.finished)
            disk.flush_folder(run.path)


def read_done(run: RunFolder) -> tuple[int, str] | None:
    """Last step and digest of a finished run; None when it is not finished.

    Raises:
        CheckpointError: the marker is there but damaged.
    """
    if not os.path.lexists(run.finished):
        return None
    fields = _read_json(run.finished)
    step, digest = fields.get("step"), fields.get("digest")
    if type(step) is not int or not isinstance(digest, str):
        raise CheckpointError(f"{run.finished} does not state step and digest; remove it and use `intrigue resume`")
    return step, digest


def is_done(run: RunFolder) -> bool:
    """Whether the run reached its last step."""
    return read_done(run) is not None


def _write_json(path: Path, fields: Mapping[str, Any]) -> None:
    atomic.write_file(path, canonical.encode(dict(fields), indent=2) + b"\n")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        fields = canonical.decode(disk.read_whole(path, JSON_LIMIT), path.name)
    except CheckpointError as error:
        raise CheckpointError(f"{path.parent}: {error}") from error
    if not isinstance(fields, dict):
        raise CheckpointError(f"{path} does not hold an object of settings")
    return fields


@dataclass(frozen=True)
class Run:
    """A run on disk, as `intrigue.train` returns it."""

    path: Path
    config: RunConfig
    step: int

    def metrics(self) -> dict[str, list[float]]:
        """Every column of metrics.csv."""
        return read_metrics(RunFolder(self.path).metrics).columns

    def episodes(self) -> dict[str, list[float]]:
        """Every column of episodes.csv."""
        return read_episodes(RunFolder(self.path).episodes).columns

    def evaluations(self) -> dict[str, list[float]]:
        """Every column of eval.csv; none where nothing was evaluated."""
        return read_metrics(RunFolder(self.path).evaluations).columns

    def digest(self) -> str:
        """One hash of the whole training state."""
        return digest(RunFolder(self.path).checkpoints)
