"""What the paper's Atari tables and figures share: which runs they need, and how they are read.

Every study trains presets on games, and its table is made from the runs' learning curves (`curves.csv`), so that a
table can be made just as well from curves trained elsewhere: `intrigue reproduce STUDY --from FILE.csv`.

    smoke   laptop-sized presets on a game or two: shows that everything runs; its scores mean nothing
    hour    full-sized presets, some games, one seed: what one GPU with 16 cores does in about an hour, 54M steps
    full    the paper's games, 1e8 steps (the Disagreement code's default; the paper states none), three seeds
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, final

from intrigue.presets import preset_layer
from intrigue.presets.atari import SMALL_MODELS
from intrigue.presets.atari_setting import laptop_sized
from intrigue.run.folder import RunFolder
from intrigue.studies.atari.plots import draw_curves
from intrigue.studies.atari.results import SMALL, Results, results_of, write_scores
from intrigue.studies.base import Arm, Budget, Conclusion, FromFiles, Study
from intrigue.studies.common.arm_names import Name
from intrigue.studies.common.curves import EVERY, Curve, export, gathered, read

NOMINAL_STEPS = 100_000_000  # DIS run.py num_timesteps; the paper says only that it follows those settings
# Ours: one short rollout of random steps, one pass over each that follows.
SMOKE_CHANGES = {
    "curiosity.warmup_steps": 512,
    "agent.rollout_steps": 64,
    "agent.epochs": 1,
    "curiosity.epochs": 1,
}
METHODS = {"Disagreement": Name("disagreement-atari"), "ICM": Name("icm-atari"), "NNM": Name("nnm-atari")}


@dataclass(frozen=True)
class Rung:
    """The games of one rung of the budgets, and what it does without."""

    games: Sequence[str]
    steps: int
    seeds: int
    skipped: Sequence[Name] = ()

    def budget(self, name: str) -> Budget:
        """One run at a time: a full-sized run takes all cores for its emulators."""
        return Budget(steps=self.steps, seeds=self.seeds, rung=name, jobs=1)


# Ours: a few games of Breakout; of Space Invaders or Gopher not one ends so soon.
SMOKE = Rung(("Breakout",), 2_048, 1)


@dataclass(frozen=True)
class Variant:
    """A method of a figure: its preset and the settings changed in it."""

    preset: str
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> Name:
        """Its name in tables, as `curve_names.name_of` finds it from the run's settings."""
        return Name(self.preset, " ".join(f"{key}={self.changes[key]}" for key in sorted(self.changes)))


class AtariStudy(Study, FromFiles, abc.ABC):
    """Presets on games, read at one common step."""

    variants: ClassVar[Sequence[Variant]]
    rungs: ClassVar[Mapping[str, Rung]]

    @final
    def arms(self) -> Sequence[Arm]:
        """Every variant on every game of every rung; smoke takes laptop sizes."""
        return [
            Arm(f"{game}: {variant.name}", layer_of(variant, game, small=rung == "smoke"), rung)
            for rung, plan in self.rungs.items()
            for game in plan.games
            for variant in self.variants
            if variant.name not in plan.skipped
        ]

    @final
    def conclude(self, runs: Mapping[str, Sequence[Path]], budget: Budget, out: Path) -> Conclusion:
        """Export the runs' curves, then read them as anybody else's."""
        names = {path: self._name(label, budget) for label, paths in runs.items() for path in paths}
        held = [path for path in names if RunFolder(path).config.exists()]
        table = export(
            held, out / "curves.csv", every=min(EVERY, budget.steps // 64), named=lambda path, _: names[path]
        )
        told = self.conclude_from(read(table), out)
        return replace(told, files=[*told.files, table])

    @final
    def conclude_files(self, sources: Sequence[Path], out: Path) -> Conclusion:
        """The table of curves in files."""
        curves = gathered(sources)
        out.mkdir(parents=True, exist_ok=True)
        return self.conclude_from(curves, out)

    @final
    def conclude_from(self, curves: Sequence[Curve], out: Path) -> Conclusion:
        """The table, a CSV file of scores and a picture of the curves."""
        results = results_of(curves)
        scores = write_scores(results, out / "scores.csv")
        told = self.judge(results)
        pictures = draw_curves(results, out, self.title)
        rows, words = list(told.rows), [*told.words, *results.notes]
        if results.small:
            # The paper claims nothing about laptops.
            rows = [replace(row, verdict=row.verdict and "SHORT") for row in rows]
            words.insert(0, "Laptop sizes: these scores cannot be compared with the paper's, so nothing is judged.")
        return replace(told, rows=rows, words=words, files=[*pictures, scores])

    @abc.abstractmethod
    def judge(self, results: Results) -> Conclusion:
        """The table and its verdicts."""

    def _name(self, label: str, budget: Budget) -> Name:
        known = {str(variant.name): variant.name for variant in self.variants}
        name = known[label.partition(": ")[2]]
        return Name(name.preset + SMALL, name.changes) if budget.rung == "smoke" else name


def layer_of(variant: Variant, game: str, small: bool) -> dict[str, Any]:
    """The configuration of a variant on a game."""
    layer = {**preset_layer(variant.preset), "env": f"atari/{game}", **variant.changes}
    if not small:
        return layer
    models = {key: value for key, value in SMALL_MODELS.items() if key in layer}
    return {**laptop_sized(layer), **models, **SMOKE_CHANGES}


def budgets_of(rungs: Mapping[str, Rung]) -> dict[str, Budget]:
    """The ladder of these rungs."""
    return {name: rung.budget(name) for name, rung in rungs.items()}


def common_words(results: Results, wanted: Sequence[str], names: Sequence[Name]) -> list[str]:
    """What was compared, and what of the paper's plan is missing."""
    seeds = {results.seeds(name, [game]) for name in results.scores for game in results.scores[name]}
    span = f"{min(seeds)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
    share = results.step / NOMINAL_STEPS
    words = [
        f"Score: mean raw return of the last 100 finished training episodes at step {results.step:,} "
        f"({share:.3g} of the nominal {NOMINAL_STEPS:,}); seeds a game: {span}."
    ]
    absent = [game for game in wanted if not any(game in results.scores.get(name, {}) for name in names)]
    if absent:
        words.append(f"Missing: {len(absent)} of {len(wanted)} games ({listed(absent)}).")
    for name in names:
        gaps = [game for game in wanted if game not in absent and game not in results.scores.get(name, {})]
        if gaps:
            words.append(f"Missing: {name} on {listed(gaps)}.")
        near = [each for each in results.scores if each.preset.removesuffix(SMALL) == name.preset]
        if name not in results.scores and near:
            words.append(f"{near[0]} does not count as {name}: its settings differ.")
    return words


def listed(names: Sequence[str], most: int = 6) -> str:
    """A few names and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
