"""Scores of runs over time as CSV files: exported from run folders, read back by the studies.

Atari, `export_curves`, one row per run about every 16,384 steps and one at its last step:

    game, preset, changes, reward, seed, step, frames, return_mean_100, episodes, wall_seconds, sps

`return_mean_100` is the mean raw return of the last 100 finished training episodes (fewer at first, empty before the
first), with the stochastic policy and sticky actions: the score that the Disagreement code prints as `eprew`. `sps` is
steps per second since the row before.

Control, `export_evaluations`, one row per evaluation, so that the last of a run is its score:

    domain, task, preset, changes, seed, snapshot_frames, finetune_frames, return_mean, return_std, episodes, expert,
    wall_seconds, environments

`snapshot_frames` is the length of the pre-training, 0 for a run from scratch. `return_std` is over the episodes of one
evaluation. `wall_seconds` are the fine-tuning's own. `environments` is how many it stepped, URLB's being one; `changes`
has `pool.num_envs` where the pre-training stepped several, and `finetune.num_envs` where the fine-tuning stepped
another number.

`preset` is the nearest preset (of the pre-training, if there was one), `changes` what was set differently, `key=value`
with spaces between (`arm_names`). The files are small: they can be committed where checkpoints cannot.
"""

from __future__ import annotations

import csv
import io
import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from intrigue.envs.dmc.names import PRIMAL
from intrigue.envs.registry import split_id
from intrigue.errors import CheckpointError, ConfigError
from intrigue.run.atomic import write_file
from intrigue.run.folder import RunFolder, read_config, read_provenance
from intrigue.run.logging.csv_files import read_episodes, read_metrics
from intrigue.run.logging.journal import WINDOW
from intrigue.run.seed_folder import seed_runs
from intrigue.scores.normalized import EXPERTS
from intrigue.scores.tables import reference_of
from intrigue.scores.urlb_published import domain_of
from intrigue.studies.common.arm_names import ArmName, name_run

EVERY = 16_384  # steps: one rollout of 128 environments x 128 steps
N_STEP = 3  # of a fine-tuning that says nothing else: `intrigue.run.finetune`, which loads torch
# What a fine-tuning sets itself, whatever its pre-training had.
SET_BY_FINETUNING = (
    "agent.n_step", "curiosity.int_coef", "curiosity.int_coef_steps", "curiosity.ext_coef", "curiosity.scale",
    "curiosity.warmup_steps", "curiosity.idle", "curiosity.follow",
)  # fmt: skip

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """The scores of one run over its steps (Atari) or frames (control); equal only to itself."""

    task: str  # a game, or a task of URLB
    name: ArmName
    seed: int
    steps: Array
    returns: Array  # NaN where no episode had finished
    snapshot: int = 0  # frames of the pre-training it began with; 0: none
    source: str = ""  # the file or folder it was read from

    @property
    def last_step(self) -> int:
        """How far the run has come."""
        return int(self.steps[-1])

    def at(self, step: int) -> float:
        """The score at the last row up to this step; NaN before the first."""
        place = int(np.searchsorted(self.steps, step, side="right")) - 1
        return float(self.returns[place]) if place >= 0 else math.nan

    def until(self, step: int) -> LearningCurve:
        """The same run as it was at this step."""
        early = self.steps <= step
        return replace(self, steps=self.steps[early], returns=self.returns[early])

    def __str__(self) -> str:
        return f"{self.name} on {self.task}, seed {self.seed}"


@dataclass(frozen=True)
class RecordFormat:
    """One kind of file: its columns, and what a row must hold."""

    export: Callable[[Iterable[Path | str], Path], Path]
    content: str  # what the file holds, for messages
    columns: tuple[str, ...]
    needed: tuple[str, ...]
    task: str  # names of columns
    step: str
    score: str
    unit: str  # of steps, for messages
    find_problem: Callable[[Mapping[str, str], float], str]  # what is wrong with a row and its score, or nothing
    study_file: str = ""  # what a study leaves in its folder that says what each run was for
    snapshot: str = ""


def export_curves(
    folders: Iterable[Path | str],
    path: Path | str,
    every: int = EVERY,
    name_of: Callable[[Path], ArmName] | None = None,
) -> Path:
    """Write the learning curves of these Atari runs, finished or not, to `path`, and return it.

    A run that has not logged anything yet adds no row. `name_of` names a run by its folder; the default is the nearest
    preset's name.
    """
    rows = (row for folder in map(Path, folders) for row in _curve_rows(RunFolder(folder), name_of, every))
    return _write(path, CURVES.columns, rows)


def export_evaluations(
    folders: Iterable[Path | str], path: Path | str, name_of: Callable[[Path], ArmName] | None = None
) -> Path:
    """Write the evaluations of these runs on tasks, finished or not, to `path`, and return it.

    A folder of several seeds stands for all runs in it. Pre-trainings are skipped; they should stay next to what was
    fine-tuned from them, because their settings name the rows. `name_of` names a run by its folder instead.
    """
    runs = (run for folder in map(Path, folders) for run in seed_runs(folder) or [folder])
    rows = (row for run in runs for row in _evaluation_rows(RunFolder(run), name_of))
    return _write(path, EVALUATIONS.columns, rows)


def gather_records(sources: Sequence[Path], kind: RecordFormat) -> list[LearningCurve]:
    """The runs in CSV files and in folders of runs; a run that stands in two of them is refused."""
    runs = [run for source in sources for run in (_read_folder if source.is_dir() else read_records)(source, kind)]
    seen: dict[tuple[str, ArmName, int, int], str] = {}
    for run in runs:
        key = (run.task, run.name, run.seed, run.snapshot)
        if key in seen:
            snapshot = f", from snapshot {run.snapshot}" if kind.snapshot else ""
            raise ConfigError(
                f"{run}{snapshot}, stands in {seen[key]} and in {run.source}. "
                "Accepted: each run once. Give one of the two."
            )
        seen[key] = run.source
    return runs


def read_records(path: Path, kind: RecordFormat) -> list[LearningCurve]:
    """The runs in a file, in the order they stand there.

    Raises:
        ConfigError: it is missing, lacks a column, or a line of it does not fit; the message has the line's number.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as a CSV file of {kind.content}: {error}") from error
    table = csv.DictReader(lines)
    missing = [name for name in kind.needed if name not in (table.fieldnames or ())]
    if missing:
        raise ConfigError(
            f"{path} lacks the columns {', '.join(missing)}. Accepted: what `{__name__}.{kind.export.__name__}` "
            f"writes, {', '.join(kind.columns)}; {', '.join(kind.needed)} are needed."
        )
    points: dict[tuple[str, ArmName, int, int], list[tuple[float, float]]] = {}
    for number, row in enumerate(table, start=2):
        try:
            name = ArmName(row["preset"], row.get("changes") or "")
            key = (row[kind.task], name, int(row["seed"]), int(row[kind.snapshot]) if kind.snapshot else 0)
            step, score = float(int(row[kind.step])), float(row[kind.score] or "nan")
            problem = kind.find_problem(row, score)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{path}, line {number}: {error}. Accepted: one number in each cell.") from error
        known = points.setdefault(key, [])
        if not problem and known and step <= known[-1][0]:
            problem = (
                f"{kind.unit} {step:.0f} follows {kind.unit} {known[-1][0]:.0f}. Accepted: rising {kind.unit}s, each "
                "run once. Export each run folder once."
            )
        if problem:
            raise ConfigError(f"{path}, line {number}: {problem}")
        known.append((step, score))
    return [
        LearningCurve(task, name, seed, steps, scores, snapshot, str(path))
        for (task, name, seed, snapshot), rows in points.items()
        for steps, scores in [np.asarray(rows, dtype=np.float64).T]
    ]


def _read_folder(folder: Path, kind: RecordFormat) -> list[LearningCurve]:
    """The runs below a folder; those of a study by the results it left, which say what each run was for."""
    if kind.study_file and (folder / kind.study_file).is_file():
        return read_records(folder / kind.study_file, kind)
    records: list[LearningCurve] = []
    with tempfile.TemporaryDirectory() as scratch:
        for run in _find_runs(folder):
            table = kind.export([run], Path(scratch) / "records.csv")
            records += [replace(record, source=str(run)) for record in read_records(table, kind)]
    if not records:
        raise ConfigError(f"{folder} holds no run with a score. Accepted: runs that `{kind.export.__name__}` exports.")
    return records


def _find_runs(folder: Path) -> list[Path]:
    """Every run folder in or below a folder, in order of their names, but for hidden ones, which are being made."""
    runs = sorted(path.parent for path in folder.rglob("config.json") if not _is_hidden(path.relative_to(folder)))
    if not runs:
        raise ConfigError(f"{folder} holds no runs. Accepted: a folder of run folders, or a CSV file of curves.")
    return runs


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _write(path: Path | str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Path:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, text.getvalue().encode())
    return path


def _curve_rows(run: RunFolder, name_of: Callable[[Path], ArmName] | None, every: int) -> list[list[str]]:
    config = read_config(run)
    family, game = split_id(str(config["env"]["id"]))
    if family != "atari":
        raise ConfigError(f"{run.path} is a run of {config['env']['id']}. Accepted: runs of atari/<Game>.")
    name = name_run(config) if name_of is None else name_of(run.path)
    metrics, episodes = read_metrics(run.metrics).columns, read_episodes(run.episodes).columns
    if not metrics.get("step"):
        return []  # it has only begun
    ends, returns = np.asarray(episodes["step"]), np.asarray(episodes["episodic_return"])
    fixed = [game, name.preset, name.changes, str(config["reward"]["name"]), str(config["run"]["seed"])]
    rows, before = [], (0.0, 0.0)
    points = list(zip(*(metrics[column] for column in ("step", "frame", "wall_seconds")), strict=True))
    for step, frame, seconds in _thin_out(points, every):
        finished = int(np.searchsorted(ends, step, side="right"))
        recent = returns[max(0, finished - WINDOW) : finished]
        speed = (step - before[0]) / (seconds - before[1]) if seconds > before[1] else math.nan
        before = (step, seconds)
        score = f"{recent.mean():.6g}" if finished else ""
        rows.append([*fixed, f"{step:.0f}", f"{frame:.0f}", score, str(finished), f"{seconds:.1f}", f"{speed:.0f}"])
    return rows


def _thin_out(points: Sequence[tuple[float, ...]], every: int) -> list[tuple[float, ...]]:
    """The points at least `every` steps apart, and the last."""
    kept: list[tuple[float, ...]] = []
    for point in points:
        if point[0] - (kept[-1][0] if kept else 0.0) >= every:
            kept.append(point)
    return kept if kept and kept[-1] == points[-1] else [*kept, points[-1]]


def _evaluation_rows(run: RunFolder, name_of: Callable[[Path], ArmName] | None) -> list[list[str]]:
    config = read_config(run)
    family, task = split_id(str(config["env"]["id"]))
    if family == "dmc" and task in PRIMAL:
        return []  # a pre-training
    if family != "dmc" or task not in EXPERTS:
        raise ConfigError(f"{run.path} is a run of {config['env']['id']}. Accepted: runs of URLB's tasks, dmc/<task>.")
    origin = read_provenance(run).get("finetuned_from")
    repeat = int(config["env"].get("action_repeat", 1))
    snapshot = 0 if origin is None else int(origin["snapshot"]) * repeat
    name = _name_finetuning(run, config, origin) if name_of is None else name_of(run.path)
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


def _name_finetuning(run: RunFolder, config: Mapping[str, Any], origin: Mapping[str, Any] | None) -> ArmName:
    """By the pre-training's settings where it is at hand, otherwise by those that fine-tuning leaves alone."""
    if origin is None:
        return name_run(config)
    # Several seeds share a folder, so what they come from is two levels up, and named with its folder.
    place = run.path.absolute().parent
    parent = place.parent if "/" in str(origin["run"]) else place
    before = _read_pretraining(parent / str(origin["run"]), config)
    name = name_run(config, without=SET_BY_FINETUNING) if before is None else name_run(before)
    n_step, environments = config["agent"]["n_step"], config["pool"]["num_envs"]
    changes = [name.changes, "" if n_step == N_STEP else f"finetune.n_step={n_step}"]
    if before is not None and before["pool"]["num_envs"] != environments:
        changes.append(f"finetune.num_envs={environments}")
    return ArmName(name.preset, " ".join(filter(None, changes)))


def _read_pretraining(folder: Path, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The settings of the run in that folder, if it is the one that this was fine-tuned from."""
    try:
        before = read_config(RunFolder(folder))
    except CheckpointError:
        return None
    agents = [{key: value for key, value in each["agent"].items() if key != "n_step"} for each in (before, config)]
    return before if agents[0] == agents[1] and before["reward"] == config["reward"] else None


def _find_curve_problem(row: Mapping[str, str], score: float) -> str:
    reference_of(row["game"])  # raises for an unknown game, with the nearest name
    return ""


def _find_evaluation_problem(row: Mapping[str, str], score: float) -> str:
    task = row["task"]
    expert = float(row.get("expert") or EXPERTS.get(task, 0))
    if task not in EXPERTS:
        return f"{task!r} is no task of URLB. Accepted: {', '.join(EXPERTS)}."
    if expert != EXPERTS[task]:
        return f"the expert's score in {task} is {EXPERTS[task]:g}, not {expert:g}. Export the runs again."
    return "" if np.isfinite(score) else f"a return of {score}. Accepted: finite numbers."


CURVES = RecordFormat(
    export_curves,
    content="curves",
    columns=(
        "game", "preset", "changes", "reward", "seed", "step", "frames", "return_mean_100", "episodes", "wall_seconds",
        "sps",
    ),
    needed=("game", "preset", "seed", "step", "return_mean_100"),
    task="game",
    step="step",
    score="return_mean_100",
    unit="step",
    find_problem=_find_curve_problem,
)  # fmt: skip
EVALUATIONS = RecordFormat(
    export_evaluations,
    content="results",
    columns=(
        "domain", "task", "preset", "changes", "seed", "snapshot_frames", "finetune_frames", "return_mean",
        "return_std", "episodes", "expert", "wall_seconds", "environments",
    ),
    needed=("task", "preset", "seed", "snapshot_frames", "finetune_frames", "return_mean"),
    task="task",
    step="finetune_frames",
    score="return_mean",
    unit="frame",
    find_problem=_find_evaluation_problem,
    study_file="results.csv",
    snapshot="snapshot_frames",
)  # fmt: skip
