"""Scores of many runs at one common step: what tables and figures of Atari are made from.

Runs that were trained side by side rarely end together. They are compared at the last step of the shortest one; a run
that did not reach half of the longest is left out instead, and so is one in which no episode finished. Every run left
out is named. `-small` sizes are only compared among themselves.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from intrigue.errors import ConfigError
from intrigue.scores import normalised
from intrigue.scores.stats import Scores
from intrigue.studies.common.arm_names import Name
from intrigue.studies.common.curves import Curve

SMALL = "-small"
LEFT_BEHIND = 0.5  # ours: share of the longest run's steps below which a run is left out rather than waited for


@dataclass(frozen=True)
class Results:
    """Scores by name and game, one per seed; curves of the runs that count, and notes on those that do not."""

    step: int
    small: bool
    scores: Mapping[Name, Mapping[str, Sequence[float]]]
    curves: Sequence[Curve]
    notes: Sequence[str]

    def games(self, *names: Name) -> list[str]:
        """The games that all of these have, in alphabetical order."""
        held = [set(self.scores.get(name, {})) for name in names]
        return sorted(set.intersection(*held)) if held else []

    def seeds(self, name: Name, games: Sequence[str]) -> int:
        """How many seeds every one of these games has."""
        return min((len(self.scores[name][game]) for game in games), default=0)

    def raw(self, name: Name, game: str) -> list[float]:
        """Raw scores of one game; none where it was not played."""
        return list(self.scores.get(name, {}).get(game, ()))

    def human(self, name: Name, games: Sequence[str]) -> Scores:
        """Human-normalised scores, (seeds, games); seeds beyond what every game has are left out."""
        seeds = self.seeds(name, games)
        columns = [[normalised(game, score) for score in self.scores[name][game][:seeds]] for game in games]
        return np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)


def results_of(curves: Sequence[Curve]) -> Results:
    """The scores of these curves. Raises ConfigError when there is none."""
    small = all(curve.name.preset.endswith(SMALL) for curve in curves)
    longest = max((curve.last_step for curve in curves), default=0)
    kept = [curve for curve in curves if curve.last_step >= LEFT_BEHIND * longest]
    step = min((curve.last_step for curve in kept), default=0)
    notes = [
        f"Left out: {_told(curve)}, which stopped at step {curve.last_step:,} of {longest:,}."
        for curve in curves
        if curve.last_step < LEFT_BEHIND * longest
    ]
    scores: dict[Name, dict[str, list[float]]] = {}
    counted = []
    for curve in sorted(kept, key=lambda each: each.seed):
        score = curve.at(step)
        if math.isnan(score):
            notes.append(f"Left out: {_told(curve)}, in which no episode had finished by step {step:,}.")
            continue
        counted.append(curve)
        scores.setdefault(_name(curve, small), {}).setdefault(curve.game, []).append(score)
    if not counted:
        detail = " ".join(notes)
        raise ConfigError(f"no run has a score. {detail} Accepted: runs with at least one finished episode.")
    return Results(step, small, scores, [_renamed(curve, small) for curve in counted], notes)


def write_scores(results: Results, path: Path) -> Path:
    """One row per run: its raw and its normalised score."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["game", "preset", "changes", "seed", "step", "score", "hns"])
        for curve in sorted(results.curves, key=lambda each: (each.game, each.name, each.seed)):
            score = curve.at(results.step)
            hns = normalised(curve.game, score)
            shown = [f"{score:.6g}", f"{hns:.6g}"]
            writer.writerow([curve.game, curve.name.preset, curve.name.changes, curve.seed, results.step, *shown])
    return path


def _name(curve: Curve, small: bool) -> Name:
    preset = curve.name.preset
    return Name(preset.removesuffix(SMALL), curve.name.changes) if small else curve.name


def _renamed(curve: Curve, small: bool) -> Curve:
    return Curve(curve.game, _name(curve, small), curve.seed, curve.steps, curve.returns, curve.source)


def _told(curve: Curve) -> str:
    return f"{curve.name} on {curve.game}, seed {curve.seed}"
