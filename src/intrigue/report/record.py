"""One run as a report sees it: its settings, how far it came, what it measured, and what is wrong with it.

    finished     its last step is reached, and every file says so
    running      not finished, and a live process holds its folder
    unfinished   not finished, and no process works on it
    damaged      a file is missing, garbled, or does not belong to the others; its numbers are not used
    duplicate    another run of the same settings, origin and seed was given too; its numbers are not used twice

Nothing here raises for a bad run: it becomes a record that says what is wrong, so that the page can show it.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from intrigue.config.run import RunConfig, flatten_json, resolve
from intrigue.errors import CheckpointError, ConfigError, IntrigueError
from intrigue.report.origin import Origin, read_origin
from intrigue.run import canonical, checkpoint, disk
from intrigue.run.checkpoint.verify import Checkpoint
from intrigue.run.folder import JSON_LIMIT, RunFolder, read_config, read_done
from intrigue.run.lock import LOCK_NAME, read_holder
from intrigue.run.logging.csv_files import read_episodes, read_metrics

State = Literal["finished", "running", "unfinished", "damaged", "duplicate"]
Columns = dict[str, list[float]]


@dataclass(frozen=True)
class RunRecord:
    """What one run folder holds; `path` is None for a policy that was simulated for the report."""

    path: Path | None
    state: State
    reason: str = ""
    config: RunConfig | None = None
    step: int = 0
    metrics: Columns = field(default_factory=dict)
    episodes: Columns = field(default_factory=dict)
    evaluations: Columns = field(default_factory=dict)  # none where nothing was evaluated
    visits: NDArray[np.int64] | None = None  # (places,) times each place was entered, up to `visits_step`
    visits_step: int = 0
    provenance: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    origin: Origin | None = None  # what it began with; None is from scratch

    @property
    def seed(self) -> int | None:
        """The run's seed, where its settings can be read."""
        return None if self.config is None else self.config.run.seed

    @property
    def version(self) -> str:
        """The version of this package that made the run, as far as it is known."""
        versions = self.provenance.get("versions")
        return str(versions.get("intrigue", "unknown")) if isinstance(versions, dict) else "unknown"


def read_record(path: Path) -> RunRecord:
    """The run at `path`, whatever state it is in."""
    folder = RunFolder(path)
    provenance, notes = _read_provenance(folder)
    try:
        config = resolve(flatten_json(read_config(folder)))
    except ConfigError as error:
        reason = f"config.json cannot be used: {error} A run that used a plug-in needs it again: add --plugin FILE."
        return RunRecord(path, "damaged", reason, provenance=provenance, notes=tuple(notes))
    except IntrigueError as error:
        return RunRecord(path, "damaged", str(error), provenance=provenance, notes=tuple(notes))
    origin = read_origin(path, provenance)
    empty = RunRecord(path, "damaged", config=config, provenance=provenance, notes=tuple(notes), origin=origin)
    try:
        return _read_results(folder, config, empty)
    except (IntrigueError, OSError) as error:
        return replace(empty, reason=str(error))


def _read_results(folder: RunFolder, config: RunConfig, empty: RunRecord) -> RunRecord:
    """The record with its tables and its newest checkpoint. Raises CheckpointError when they do not fit together."""
    saved = _load_newest(folder)
    if saved.config_digest != config.digest():
        raise CheckpointError(f"config.json does not describe the run that wrote {saved.path.name}: digests differ")
    metrics, episodes = read_metrics(folder.metrics), read_episodes(folder.episodes)
    evaluations = read_metrics(folder.evaluations)
    finish = read_done(folder)
    if finish is not None and (finish[0] != saved.step or saved.step < config.run.steps):
        raise CheckpointError(
            f"DONE says step {finish[0]}, the checkpoint is of step {saved.step}, "
            f"config.json asks for {config.run.steps}"
        )
    last = [int(table.columns["step"][-1]) for table in (metrics, episodes) if table.columns.get("step")]
    standing: tuple[State, str] = ("finished", "") if finish is not None else _read_live_state(folder)
    return replace(
        empty,
        state=standing[0],
        reason=standing[1],
        step=max([saved.step, *last]),
        metrics=metrics.columns,
        episodes=episodes.columns,
        evaluations=evaluations.columns,
        visits=_read_visits(saved.state),
        visits_step=saved.step,
        notes=(*empty.notes, *metrics.notes, *episodes.notes, *evaluations.notes),
    )


def _load_newest(folder: RunFolder) -> Checkpoint:
    """The selected checkpoint; an older whole one does not stand in for it, since the tables go beyond that."""
    skipped: list[str] = []
    try:
        saved = checkpoint.load(folder.checkpoints, on_skip=skipped.append)
    except CheckpointError as error:
        raise CheckpointError(skipped[0] if skipped else str(error)) from error
    if skipped:
        raise CheckpointError(skipped[0])
    return saved


def _read_live_state(folder: RunFolder) -> tuple[State, str]:
    """Whether a process is working on the run. The lock is only read: a report must never block a run."""
    holder = read_holder(folder.path / LOCK_NAME)
    if not holder or not holder["pid"].isdigit():
        return "unfinished", "go on with `intrigue resume`"
    here = holder["host"] == socket.gethostname()
    if here and not _is_alive(int(holder["pid"])):
        return "unfinished", "its process is gone; go on with `intrigue resume`"
    return "running", f"pid {holder['pid']} on host {holder['host']} since {holder['since']}"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def _read_visits(state: Any) -> NDArray[np.int64] | None:
    collector = state.get("collector") if isinstance(state, dict) else None
    visits = collector.get("visits") if isinstance(collector, dict) else None
    if not isinstance(visits, np.ndarray) or visits.ndim != 1 or not visits.size:
        return None
    return visits.astype(np.int64)


def _read_provenance(folder: RunFolder) -> tuple[dict[str, Any], list[str]]:
    try:
        fields = canonical.decode(disk.read_whole(folder.provenance, JSON_LIMIT), folder.provenance.name)
    except IntrigueError as error:
        return {}, [f"where the run came from is not known: {error}"]
    if not isinstance(fields, dict):
        return {}, ["where the run came from is not known: provenance.json is not an object"]
    return fields, []
