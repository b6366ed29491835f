"""What the paper's Atari tables and figures share: which runs they need, and how they are read.

Every study trains presets on games; its table is made from the runs' learning curves (`curves.csv`).

    smoke   laptop-sized presets on a game or two: shows that everything runs; its scores mean nothing
    hour    full-sized presets, some games, one seed: what one GPU with 16 cores does in about an hour, 54M steps
    full    the paper's games, 1e8 steps (the Disagreement code's default; the paper states none), three seeds
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, final

from intrigue.presets import preset_layer
from intrigue.presets.atari import SMALL_MODELS
from intrigue.presets.atari_setting import shrink_for_laptop
from intrigue.scores import ATARI_57, normalised
from intrigue.studies.atari.plots import draw_curves
from intrigue.studies.base import Arm, Budget
from intrigue.studies.common.arm_names import ArmName
from intrigue.studies.common.results import SMALL, Benchmark, Results, compare_runs, write_table
from intrigue.studies.common.run_records import CURVES, EVERY, LearningCurve, RecordFormat, export_curves
from intrigue.studies.common.study import RecordStudy
from intrigue.studies.common.verdicts import list_names

NOMINAL_STEPS = 100_000_000  # DIS run.py num_timesteps; the paper says only that it follows those settings
# Ours: one short rollout of random steps, one pass over each that follows.
SMOKE_CHANGES = {
    "curiosity.warmup_steps": 512,
    "agent.rollout_steps": 64,
    "agent.epochs": 1,
    "curiosity.epochs": 1,
}
ATARI = Benchmark(sorted(ATARI_57), normalised, "step", "in which no episode had finished by")
METHODS = {"Disagreement": ArmName("disagreement-atari"), "ICM": ArmName("icm-atari"), "NNM": ArmName("nnm-atari")}


@dataclass(frozen=True)
class AtariLevel:
    """What one budget runs: its games, and the variants it does without."""

    games: Sequence[str]
    steps: int
    seeds: int
    skipped: Sequence[ArmName] = ()

    def budget(self, name: str) -> Budget:
        """One run at a time: a full-sized run takes all cores for its emulators."""
        return Budget(steps=self.steps, seeds=self.seeds, level=name, jobs=1)


# Ours: a few games of Breakout; of Space Invaders or Gopher not one ends so soon.
SMOKE = AtariLevel(("Breakout",), 2_048, 1)


@dataclass(frozen=True)
class Variant:
    """A method of a figure: its preset and the settings changed in it."""

    preset: str
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> ArmName:
        """Its name in tables, as `arm_names.name_run` finds it from the run's settings."""
        return ArmName(self.preset, " ".join(f"{key}={self.changes[key]}" for key in sorted(self.changes)))


class AtariStudy(RecordStudy, abc.ABC):
    """Presets on games, read at one common step."""

    records: ClassVar[RecordFormat] = CURVES
    variants: ClassVar[Sequence[Variant]]
    levels: ClassVar[Mapping[str, AtariLevel]]

    @final
    def arms(self) -> Sequence[Arm]:
        """Every variant on every game of every level; smoke takes laptop sizes."""
        return [
            Arm(f"{game}: {variant.name}", layer_of(variant, game, small=level == "smoke"), level)
            for level, plan in self.levels.items()
            for game in plan.games
            for variant in self.variants
            if variant.name not in plan.skipped
        ]

    @final
    def name_arm(self, label: str, budget: Budget) -> ArmName:
        """The variant's name, with the mark of laptop sizes at the smoke level."""
        known = {str(variant.name): variant.name for variant in self.variants}
        name = known[label.partition(": ")[2]]
        return ArmName(name.preset + SMALL, name.changes) if budget.level == "smoke" else name

    @final
    def export(self, runs: Mapping[Path, ArmName], budget: Budget, out: Path) -> Path:
        """The learning curves."""
        return export_curves(runs, out / "curves.csv", min(EVERY, budget.steps // 64), runs.__getitem__)

    @final
    def compare(self, runs: Sequence[LearningCurve]) -> Results:
        """Scores at the last step of the shortest run."""
        return compare_runs(runs, ATARI)

    @final
    def write_scores(self, results: Results, path: Path) -> Path:
        """One row per run: its raw and its human-normalised score."""
        rows = []
        for run in sorted(results.runs, key=lambda each: (each.task, each.name, each.seed)):
            score = run.at(results.step)
            shown = [f"{score:.6g}", f"{normalised(run.task, score):.6g}"]
            rows.append([run.task, run.name.preset, run.name.changes, run.seed, results.step, *shown])
        return write_table(path, ["game", "preset", "changes", "seed", "step", "score", "hns"], rows)

    @final
    def draw(self, results: Results, out: Path) -> list[Path]:
        """The learning curves."""
        return draw_curves(results, out, self.title)


def layer_of(variant: Variant, game: str, small: bool) -> dict[str, Any]:
    """The configuration of a variant on a game."""
    layer = {**preset_layer(variant.preset), "env": f"atari/{game}", **variant.changes}
    if not small:
        return layer
    models = {key: value for key, value in SMALL_MODELS.items() if key in layer}
    return {**shrink_for_laptop(layer), **models, **SMOKE_CHANGES}


def describe_data(results: Results, wanted: Sequence[str], names: Sequence[ArmName]) -> list[str]:
    """What was compared, and what of the paper's plan is missing."""
    share = results.step / NOMINAL_STEPS
    words = [
        f"Score: mean raw return of the last 100 finished training episodes at step {results.step:,} "
        f"({share:.3g} of the nominal {NOMINAL_STEPS:,}); seeds a game: {results.seeds_text}."
    ]
    absent = [game for game in wanted if not any(game in results.scores.get(name, {}) for name in names)]
    if absent:
        words.append(f"Missing: {len(absent)} of {len(wanted)} games ({list_names(absent)}).")
    for name in names:
        gaps = [game for game in wanted if game not in absent and game not in results.scores.get(name, {})]
        if gaps:
            words.append(f"Missing: {name} on {list_names(gaps)}.")
        near = [each for each in results.scores if each.preset.removesuffix(SMALL) == name.preset]
        if name not in results.scores and near:
            words.append(f"{near[0]} does not count as {name}: its settings differ.")
    return words
