"""Learning curves of Atari runs as one CSV file: written from run folders, read back by the studies.

    game, preset, changes, reward, seed, step, frames, return_mean_100, episodes, wall_seconds, sps

One row per run about every 16,384 steps, and one at its last step. `return_mean_100` is the mean raw return of the last
100 finished training episodes so far (fewer at first, empty before one has finished): the score that the Disagreement
code prints as `eprew`, with its stochastic policy and sticky actions. `preset` is the nearest preset and `changes` what
was set differently, `key=value` with spaces between. `sps` is steps per second since the row before.

The file is small, so it can be committed where checkpoints cannot, and tables can be made again from it.
"""

from __future__ import annotations

import csv
import io
import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from intrigue.envs.registry import split_id
from intrigue.errors import ConfigError
from intrigue.run.atomic import write_file
from intrigue.run.folder import RunFolder, read_config
from intrigue.run.logging.csv_files import read_episodes, read_metrics
from intrigue.run.logging.journal import WINDOW
from intrigue.scores.tables import reference_of
from intrigue.studies.common.arm_names import Name, name_of

EVERY = 16_384  # steps: one rollout of 128 environments x 128 steps
COLUMNS = (
    "game", "preset", "changes", "reward", "seed", "step", "frames", "return_mean_100", "episodes", "wall_seconds",
    "sps",
)  # fmt: skip
NEEDED = ("game", "preset", "seed", "step", "return_mean_100")

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """One run's learning curve; a return is NaN where no episode had finished."""

    game: str
    name: Name
    seed: int
    steps: Array
    returns: Array
    source: str = field(default="", compare=False)

    @property
    def last_step(self) -> int:
        """How far the run has come."""
        return int(self.steps[-1])

    def at(self, step: int) -> float:
        """The score at the last row up to this step."""
        place = int(np.searchsorted(self.steps, step, side="right")) - 1
        return float(self.returns[place]) if place >= 0 else math.nan


def export(
    folders: Iterable[Path | str],
    path: Path | str,
    every: int = EVERY,
    named: Callable[[Path, Mapping[str, Any]], Name] | None = None,
) -> Path:
    """Write the curves of these run folders, finished or not, to `path`, and give it back.

    A run that has not logged anything yet adds no row.
    `named` says what a run is called, from its folder and its configuration; by default the nearest preset's name.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for folder in folders:
        config = read_config(RunFolder(Path(folder)))
        name = named(Path(folder), config) if named is not None else name_of(config)
        writer.writerows(_rows(RunFolder(Path(folder)), config, name, every))
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, text.getvalue().encode())
    return path


def runs_below(folder: Path) -> list[Path]:
    """Every run folder in or below a folder, in order of their names, but for hidden ones, which are being made."""
    found = sorted(path.parent for path in folder.rglob("config.json") if not _hidden(path.relative_to(folder)))
    if not found:
        raise ConfigError(f"{folder} holds no runs. Accepted: a folder of run folders, or a CSV file of curves.")
    return found


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def gathered(sources: Sequence[Path]) -> list[Curve]:
    """The curves of CSV files and of folders of runs; a run that stands in two of them is refused."""
    curves = [curve for source in sources for curve in (_of_folder(source) if source.is_dir() else read(source))]
    seen: dict[tuple[str, Name, int], str] = {}
    for curve in curves:
        key = (curve.game, curve.name, curve.seed)
        if key in seen:
            raise ConfigError(
                f"{curve.name} on {curve.game}, seed {curve.seed}, stands in {seen[key]} and in {curve.source}. "
                "Accepted: each run once. Give one of the two."
            )
        seen[key] = curve.source
    return curves


def _of_folder(folder: Path) -> list[Curve]:
    with tempfile.TemporaryDirectory() as scratch:
        found = read(export(runs_below(folder), Path(scratch) / "curves.csv"))
    return [replace(curve, source=str(folder)) for curve in found]


def read(path: Path) -> list[Curve]:
    """The curves in a file, runs in the order they stand there.

    Raises:
        ConfigError: it is missing, lacks a column, or a line of it does not fit; the message has the line's number.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as a CSV file of curves: {error}") from error
    table = csv.DictReader(lines)
    missing = [name for name in NEEDED if name not in (table.fieldnames or ())]
    if missing:
        raise ConfigError(
            f"{path} lacks the columns {', '.join(missing)}. Accepted: what `intrigue.studies.common.curves.export` "
            f"writes, {', '.join(COLUMNS)}; {', '.join(NEEDED)} are needed."
        )
    points: dict[tuple[str, Name, int], list[tuple[float, float]]] = {}
    for number, row in enumerate(table, start=2):
        try:
            key = (row["game"], Name(row["preset"], row.get("changes") or ""), int(row["seed"]))
            point = (float(int(row["step"])), float(row["return_mean_100"] or "nan"))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{path}, line {number}: {error}. Accepted: one number in each cell.") from error
        reference_of(row["game"])
        known = points.setdefault(key, [])
        if known and point[0] <= known[-1][0]:
            raise ConfigError(
                f"{path}, line {number}: step {point[0]:.0f} of {key[1]}, seed {key[2]}, on {key[0]} follows step "
                f"{known[-1][0]:.0f}. Accepted: rising steps, each run once. Export each run folder once."
            )
        known.append(point)
    return [
        Curve(game, name, seed, np.array([step for step, _ in rows]), np.array([score for _, score in rows]), str(path))
        for (game, name, seed), rows in points.items()
    ]


def _rows(run: RunFolder, config: Mapping[str, Any], name: Name, every: int) -> list[list[str]]:
    family, game = split_id(str(config["env"]["id"]))
    if family != "atari":
        raise ConfigError(f"{run.path} is a run of {config['env']['id']}. Accepted: runs of atari/<Game>.")
    metrics, episodes = read_metrics(run.metrics).columns, read_episodes(run.episodes).columns
    if not metrics.get("step"):
        return []  # it has only begun
    ends, returns = np.asarray(episodes["step"]), np.asarray(episodes["episodic_return"])
    fixed = [game, name.preset, name.changes, str(config["reward"]["name"]), str(config["run"]["seed"])]
    rows, before = [], (0.0, 0.0)
    points = list(zip(*(metrics[column] for column in ("step", "frame", "wall_seconds")), strict=True))
    for step, frame, seconds in _thinned(points, every):
        finished = int(np.searchsorted(ends, step, side="right"))
        recent = returns[max(0, finished - WINDOW) : finished]
        speed = (step - before[0]) / (seconds - before[1]) if seconds > before[1] else math.nan
        before = (step, seconds)
        score = f"{recent.mean():.6g}" if finished else ""
        rows.append([*fixed, f"{step:.0f}", f"{frame:.0f}", score, str(finished), f"{seconds:.1f}", f"{speed:.0f}"])
    return rows


def _thinned(points: Sequence[tuple[float, ...]], every: int) -> list[tuple[float, ...]]:
    """The points at least `every` steps apart, and the last."""
    kept: list[tuple[float, ...]] = []
    for point in points:
        if point[0] - (kept[-1][0] if kept else 0.0) >= every:
            kept.append(point)
    return kept if kept and kept[-1] == points[-1] else [*kept, points[-1]]
