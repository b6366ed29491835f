"""The plan as groups of runs in order of worth: a pre-training with its fine-tunings, or one training.

Run     what a row of results is of, by what was asked for
Group   what is trained together: one process, and the fine-tunings that follow it
"""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ENTRY = {"item", "why", "results", "pretrain", "train", "presets", "changes", "seeds", "steps", "finetune"}
RATE = {"phase", "env", "preset", "steps_per_second", "start_seconds", "gpu", "cores", "workers", "source"}


class QueueError(Exception):
    """What is wrong, what is accepted, what to do."""


@dataclass(frozen=True, order=True)
class Run:
    """A run that ends in results. `pretrained` is how many steps it begins after; 0: from scratch."""

    env: str
    preset: str
    changes: str
    seed: int
    pretrained: int
    steps: int

    def __str__(self) -> str:
        before = f" after {self.pretrained:,}" if self.pretrained else ""
        return " ".join(filter(None, [self.env, self.preset, self.changes, f"seed {self.seed}"])) + before


@dataclass(frozen=True)
class Group:
    """Seeds of one preset in one environment; with `tasks` they are fine-tuned afterwards, `finetune` steps each."""

    item: str
    results: str
    env: str
    preset: str
    changes: tuple[tuple[str, str], ...]
    seeds: tuple[int, ...]
    steps: int
    tasks: tuple[str, ...] = ()
    finetune: int = 0

    @property
    def runs(self) -> list[Run]:
        """What comes of it."""
        named = " ".join(f"{key}={value}" for key, value in self.changes)
        if not self.tasks:
            return [Run(self.env, self.preset, named, seed, 0, self.steps) for seed in self.seeds]
        return [
            Run(task, self.preset, named, seed, self.steps, self.finetune) for task in self.tasks for seed in self.seeds
        ]


@dataclass(frozen=True)
class Rate:
    """How fast a process goes, and what it needs of a machine; see plan.toml."""

    steps_per_second: float
    start_seconds: float
    gpu: float
    cores: int
    workers: int = 0
    source: str = ""


@dataclass(frozen=True)
class Plan:
    """All that is wanted, and the rates to pack it by."""

    groups: tuple[Group, ...]
    rates: tuple[tuple[Mapping[str, str], Rate], ...]

    @property
    def runs(self) -> list[Run]:
        """Every wanted run once, in order of worth."""
        return list(dict.fromkeys(run for group in self.groups for run in group.runs))

    def rate(self, phase: str, env: str, preset: str) -> Rate:
        """The first rate that fits."""
        asked = {"phase": phase, "env": env, "preset": preset}
        for patterns, rate in self.rates:
            if all(fnmatchcase(asked[key], pattern) for key, pattern in patterns.items()):
                return rate
        raise QueueError(f"no rate for {preset} on {env} ({phase}). Accepted: a [[rate]] that fits it. Add one.")


def read_plan(path: Path = HERE / "plan.toml") -> Plan:
    """The plan in a file. Raises QueueError where an entry does not fit."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise QueueError(f"{path} cannot be read as a plan: {error}") from error
    groups = [
        group
        for number, entry in enumerate(tree.get("want", []), start=1)
        for group in _groups(_checked(entry, ENTRY, f"{path}, [[want]] number {number}"), tree.get("sets", {}), path)
    ]
    rates = [
        ({key: entry[key] for key in ("phase", "env", "preset") if key in entry}, _rate(entry))
        for number, entry in enumerate(tree.get("rate", []), start=1)
        if _checked(entry, RATE, f"{path}, [[rate]] number {number}")
    ]
    return Plan(tuple(groups), tuple(rates))


def credits(results: Path, runs: list[Run], path: Path = HERE / "credits.csv") -> dict[Run, str]:
    """Wanted runs that were measured before there was a queue, and the file each stands in.

    Raises:
        QueueError: a credited run is not in its file, or shorter there than the credit says.
    """
    found: dict[Run, str] = {}
    if not path.is_file():
        return found
    for line in _table(path):
        rows = _table(results / line["file"])
        for run in runs:
            wanted = (run.preset, run.changes, run.pretrained, run.steps)
            if wanted != (line["preset"], "", int(line["pretrained"]), int(line["steps"])):
                continue
            if not fnmatchcase(run.env, line["tasks"]) or str(run.seed) not in line["seeds"].split():
                continue
            if not any(_is_of(row, run) for row in rows):
                raise QueueError(f"{path} credits {run}, which {line['file']} does not have. Take the line out.")
            found[run] = line["file"]
    return found


def _is_of(row: Mapping[str, str], run: Run) -> bool:
    name = (row.get("task") or row["game"], row["preset"], row["changes"], row["seed"])
    if name != (run.env.partition("/")[2], run.preset, run.changes, str(run.seed)):
        return False
    return int(row.get("snapshot_frames") or 0) == run.pretrained and int(row["finetune_frames"]) == run.steps


def _table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _checked(entry: dict[str, Any], known: set[str], where: str) -> dict[str, Any]:
    unknown = entry.keys() - known
    if unknown:
        raise QueueError(f"{where}: unknown {', '.join(sorted(unknown))}. Accepted: {', '.join(sorted(known))}.")
    return entry


def _rate(entry: Mapping[str, Any]) -> Rate:
    return Rate(**{key: value for key, value in entry.items() if key not in ("phase", "env", "preset")})


def _groups(entry: Mapping[str, Any], sets: Mapping[str, list[str]], path: Path) -> list[Group]:
    if ("pretrain" in entry) == ("train" in entry) or ("pretrain" in entry) != ("finetune" in entry):
        raise QueueError(
            f"{path}, {entry.get('why')!r}: say what is trained. Accepted: `train`, or `pretrain` and `finetune`."
        )
    changes = tuple(sorted((key, _word(value)) for key, value in entry.get("changes", {}).items()))
    fixed = (entry["item"], entry["results"])
    seeds, steps = tuple(entry["seeds"]), int(entry["steps"])
    if "pretrain" in entry:
        return [
            Group(*fixed, f"dmc/{domain}", preset, changes, seeds, steps, tuple(sets[domain]), int(entry["finetune"]))
            for domain in entry["pretrain"]
            for preset in entry["presets"]
        ]
    envs = [env for name in entry["train"] for env in sets.get(name, [name])]
    return [
        Group(*fixed, env, preset, changes, (seed,), steps)
        for env in envs
        for preset in entry["presets"]
        for seed in seeds
    ]


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
