"""Fine-tuning results as one CSV file: written from run folders, read back by the studies.

    domain, task, preset, changes, seed, snapshot_frames, finetune_frames, return_mean, return_std, episodes, expert,
    wall_seconds, environments

One row per evaluation, so the last of a run is its score and all of them are its learning curve. `preset` and `changes`
are those of the pre-training (`arm_names`), `snapshot_frames` is how long that was; 0 is a run from scratch.
`return_std` is over the episodes of one evaluation, not over seeds. `wall_seconds` are the fine-tuning's own.
`environments` is how many the fine-tuning stepped, URLB's being one; `changes` has `pool.num_envs` where the
pre-training stepped several, and `finetune.num_envs` where the fine-tuning stepped another number.
"""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from intrigue.envs.dmc.names import PRIMAL
from intrigue.envs.registry import split_id
from intrigue.errors import CheckpointError, ConfigError
from intrigue.run.atomic import write_file
from intrigue.run.folder import RunFolder, read_config, read_provenance
from intrigue.run.logging.csv_files import read_metrics
from intrigue.run.seed_folder import seed_runs
from intrigue.scores.normalized import EXPERTS
from intrigue.scores.urlb_published import domain_of
from intrigue.studies.common.arm_names import Name, name_of
from intrigue.studies.common.curves import Array, Curve, runs_below

COLUMNS = (
    "domain", "task", "preset", "changes", "seed", "snapshot_frames", "finetune_frames", "return_mean", "return_std",
    "episodes", "expert", "wall_seconds", "environments",
)  # fmt: skip
RESULTS = "results.csv"  # what a study leaves in its folder
NEEDED = ("task", "preset", "seed", "snapshot_frames", "finetune_frames", "return_mean")
N_STEP = 3  # of a fine-tuning that says nothing else: `intrigue.run.finetune`, which loads torch
# What a fine-tuning sets itself, whatever its pre-training had.
SET_BY_FINETUNING = (
    "agent.n_step", "curiosity.int_coef", "curiosity.int_coef_steps", "curiosity.ext_coef", "curiosity.scale",
    "curiosity.warmup_steps", "curiosity.idle", "curiosity.follow",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Tuning:
    """One run on a task: the mean return of its evaluations after so many frames; equal only to itself."""

    task: str
    name: Name
    seed: int
    snapshot: int
    """Frames of the pre-training it began with; 0: none."""
    frames: Array
    returns: Array
    source: str = ""

    @property
    def last(self) -> int:
        """Frames at the last evaluation."""
        return int(self.frames[-1])

    @property
    def curve(self) -> Curve:
        """The same for a picture."""
        return Curve(self.task, self.name, self.seed, self.frames, self.returns, self.source)

    def until(self, frames: int) -> Tuning:
        """The same run as it was there."""
        early = self.frames <= frames
        return replace(self, frames=self.frames[early], returns=self.returns[early])

    def at(self, frames: int) -> float:
        """The score of the last evaluation up to there."""
        return self.curve.at(frames)

    def __str__(self) -> str:
        return f"{self.name} on {self.task}, seed {self.seed}"


def export(
    folders: Iterable[Path | str],
    path: Path | str,
    named: Callable[[Path], Name] | None = None,
) -> Path:
    """Write the evaluations of these runs on tasks, finished or not, to `path`, and give it back.

    A folder of several seeds stands for all runs in it. Pre-trainings among them are passed over; they should stay
    beside what was fine-tuned from them, because their settings name the rows. `named` says what a run is called
    instead.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for folder in map(Path, folders):
        for run in seed_runs(folder) or [folder]:
            writer.writerows(_rows(RunFolder(run), named))
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, text.getvalue().encode())
    return path


def gathered(sources: Sequence[Path]) -> list[Tuning]:
    """The results in CSV files and in folders of runs; a run that stands in two of them is refused."""
    runs = [run for source in sources for run in (_of_folder(source) if source.is_dir() else read(source))]
    seen: dict[tuple[str, Name, int, int], str] = {}
    for run in runs:
        key = (run.task, run.name, run.seed, run.snapshot)
        if key in seen:
            raise ConfigError(
                f"{run}, from snapshot {run.snapshot}, stands in {seen[key]} and in {run.source}. "
                "Accepted: each run once. Give one of the two."
            )
        seen[key] = run.source
    return runs


def read(path: Path) -> list[Tuning]:
    """The runs in a file, in the order they stand there.

    Raises:
        ConfigError: it is missing, lacks a column, or a line of it does not fit; the message has the line's number.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as a CSV file of results: {error}") from error
    table = csv.DictReader(lines)
    missing = [name for name in NEEDED if name not in (table.fieldnames or ())]
    if missing:
        raise ConfigError(
            f"{path} lacks the columns {', '.join(missing)}. Accepted: what `intrigue.studies.urlb.runs.export` "
            f"writes, {', '.join(COLUMNS)}; {', '.join(NEEDED)} are needed."
        )
    points: dict[tuple[str, Name, int, int], list[tuple[float, float]]] = {}
    for number, row in enumerate(table, start=2):
        try:
            name = Name(row["preset"], row.get("changes") or "")
            key = (row["task"], name, int(row["seed"]), int(row["snapshot_frames"]))
            point = (float(int(row["finetune_frames"])), float(row["return_mean"]))
            expert = float(row.get("expert") or EXPERTS.get(key[0], 0))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{path}, line {number}: {error}. Accepted: one number in each cell.") from error
        known = points.setdefault(key, [])
        problem = _problem(key[0], expert, point, known)
        if problem:
            raise ConfigError(f"{path}, line {number}: {problem}")
        known.append(point)
    runs = []
    for (task, name, seed, snapshot), rows in points.items():
        frames, returns = (np.asarray(part, dtype=np.float64) for part in zip(*rows, strict=True))
        runs.append(Tuning(task, name, seed, snapshot, frames, returns, str(path)))
    return runs


def _problem(task: str, expert: float, point: tuple[float, float], known: Sequence[tuple[float, float]]) -> str:
    if task not in EXPERTS:
        return f"{task!r} is no task of URLB. Accepted: {', '.join(EXPERTS)}."
    if expert != EXPERTS[task]:
        return f"the expert's score in {task} is {EXPERTS[task]:g}, not {expert:g}. Export the runs again."
    if not np.isfinite(point[1]):
        return f"a return of {point[1]}. Accepted: finite numbers."
    if known and point[0] <= known[-1][0]:
        return (
            f"frame {point[0]:.0f} follows frame {known[-1][0]:.0f}. Accepted: rising frames, each run once. "
            "Export each run folder once."
        )
    return ""


def _of_folder(folder: Path) -> list[Tuning]:
    """The runs below a folder; those of a study by the results it left, which say what each run was for."""
    if (folder / RESULTS).is_file():
        return read(folder / RESULTS)
    found: list[Tuning] = []
    with tempfile.TemporaryDirectory() as scratch:
        for run in runs_below(folder):
            table = export([run], Path(scratch) / RESULTS)
            found += [replace(tuning, source=str(run)) for tuning in read(table)]
    if not found:
        raise ConfigError(f"{folder} holds no evaluated run of a task. Accepted: what `intrigue finetune` leaves.")
    return found


def _rows(run: RunFolder, named: Callable[[Path], Name] | None) -> list[list[str]]:
    config = read_config(run)
    family, task = split_id(str(config["env"]["id"]))
    if family == "dmc" and task in PRIMAL:
        return []  # a pre-training
    if family != "dmc" or task not in EXPERTS:
        raise ConfigError(f"{run.path} is a run of {config['env']['id']}. Accepted: runs of URLB's tasks, dmc/<task>.")
    origin = read_provenance(run).get("finetuned_from")
    repeat = int(config["env"].get("action_repeat", 1))
    snapshot = 0 if origin is None else int(origin["snapshot"]) * repeat
    name = _name(run, config, origin) if named is None else named(run.path)
    fixed = [domain_of(task), task, name.preset, name.changes, str(config["run"]["seed"]), str(snapshot)]
    environments = str(config["pool"]["num_envs"])
    table = read_metrics(run.evaluations).columns
    if not table.get("step"):
        return []  # it has only begun
    wanted = ("frame", "eval/return_mean", "eval/return_std", "eval/episodes", "wall_seconds")
    cells = zip(*(table[column] for column in wanted), strict=True)
    return [
        [*fixed, f"{frame:.0f}", f"{mean:.6g}", f"{std:.6g}", f"{episodes:.0f}", f"{EXPERTS[task]:g}", f"{seconds:.1f}",
         environments]
        for frame, mean, std, episodes, seconds in cells
    ]  # fmt: skip


def _name(run: RunFolder, config: Mapping[str, Any], origin: Mapping[str, Any] | None) -> Name:
    """By the pre-training's settings where it is at hand, otherwise by those that fine-tuning leaves alone."""
    if origin is None:
        return name_of(config)
    # Several seeds share a folder, so what they come from is two levels up, and named with its folder.
    place = run.path.absolute().parent
    beside = place.parent if "/" in str(origin["run"]) else place
    before = _pretraining(beside / str(origin["run"]), config)
    name = name_of(config, without=SET_BY_FINETUNING) if before is None else name_of(before)
    n_step, environments = config["agent"]["n_step"], config["pool"]["num_envs"]
    told = [name.changes, "" if n_step == N_STEP else f"finetune.n_step={n_step}"]
    if before is not None and before["pool"]["num_envs"] != environments:
        told.append(f"finetune.num_envs={environments}")
    return Name(name.preset, " ".join(filter(None, told)))


def _pretraining(folder: Path, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The settings of the run in that folder, if it is the one that this was fine-tuned from."""
    try:
        found = read_config(RunFolder(folder))
    except CheckpointError:
        return None
    agents = [{key: value for key, value in each["agent"].items() if key != "n_step"} for each in (found, config)]
    return found if agents[0] == agents[1] and found["reward"] == config["reward"] else None
