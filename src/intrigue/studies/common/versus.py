"""Raw scores of several methods in one game, and one method against the best of the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intrigue.scores import Interval
from intrigue.scores.stats import bootstrap_interval, mean
from intrigue.studies.atari.results import Results
from intrigue.studies.base import Row
from intrigue.studies.common.arm_names import Name
from intrigue.studies.common.verdicts import difference, scores_text, span


def measured(results: Results, game: str, names: Sequence[Name]) -> list[Row]:
    """One row for each method that was run, without a verdict."""
    rows = []
    for name in names:
        raw = results.raw(name, game)
        if raw:
            interval = bootstrap_interval(raw, np.random.default_rng(0))
            rows.append(Row(f"{game}: {name}", "-", scores_text(raw), len(raw), interval=span(interval)))
    return rows


def others_than(results: Results, games: Sequence[str], names: Sequence[Name]) -> list[Row]:
    """Rows for what else is in the data on these games."""
    rest = sorted(set(results.scores) - set(names))
    return [row for game in games for row in measured(results, game, rest)]


def versus_best(results: Results, game: str, ours: Name, rivals: Sequence[Name]) -> tuple[bool, Name, Interval | None]:
    """Whether ours has the highest mean, the best of the others, and the interval of ours minus that one."""
    held = [name for name in rivals if results.raw(name, game)]
    best = max(held, key=lambda name: mean(results.raw(name, game)))
    mine, theirs = results.raw(ours, game), results.raw(best, game)
    return mean(mine) > mean(theirs), best, difference(mine, theirs)
