"""How claims are judged, how scores are written in tables, and figures of finished runs to judge by.

The rules, stated before any result:

    order      "A above B" in a task or an aggregate: 95 % interval over seeds of the difference. PASS wholly on the
               claim's side, FAIL wholly on the other, SHORT when it holds 0 or there is one seed.
    value      a number of the paper: PASS when our interval reaches the recomputed value or lies above it. Below it:
               FAIL only after the nominal length of training, since less training explains less; SHORT before.
    aggregate  a claim about the mean over the paper's tasks is judged on all of them; on fewer it is SHORT.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from intrigue.run import checkpoint
from intrigue.run.folder import RunFolder
from intrigue.run.logging.csv_files import read_episodes, read_metrics
from intrigue.scores import Interval, Scores, stats
from intrigue.scores.stats import bootstrap_interval, mean
from intrigue.studies.base import TableRow, Verdict
from intrigue.studies.common.arm_names import ArmName
from intrigue.studies.common.results import Results


def judge_order(interval: Interval | None, above: float = 0.0) -> Verdict:
    """Whether what the interval is of lies above a bound."""
    if interval is None or interval[0] <= above <= interval[1]:
        return "SHORT"
    return "PASS" if interval[0] > above else "FAIL"


def judge_value(interval: Interval | None, value: float, nominal: bool) -> Verdict:
    """Whether a value of the paper is reached; `nominal`: trained as long as the paper's settings say."""
    if interval is None:
        return "SHORT"
    if interval[1] >= value:
        return "PASS"
    return "FAIL" if nominal else "SHORT"


def mean_difference(ours: Sequence[float], theirs: Sequence[float], times: float = 1.0) -> Interval | None:
    """Interval over seeds of mean(ours) − times · mean(theirs) in one game; None for one seed."""
    return stats.difference_interval(ours, theirs, np.random.default_rng(0), times=times)


def spread_interval(ours: Sequence[float], theirs: Sequence[float]) -> Interval | None:
    """Interval over seeds of the difference of standard deviations; None below three seeds, which have hardly one."""
    if min(len(ours), len(theirs)) < 3:
        return None
    return stats.difference_interval(ours, theirs, np.random.default_rng(0), statistic=lambda drawn: float(drawn.std()))


def make_order_row(
    quantity: str,
    cells: tuple[str, str],
    parts: Sequence[Sequence[float] | Scores],
    interval: Interval | None,
    digits: int = 2,
    *,
    complete: bool = True,
    keep: bool = True,
    recomputed: str = "-",
) -> TableRow:
    """A row on the order of methods: the cells "paper" and "ours", the fewest seeds of the parts, and the verdict.

    SHORT where the tasks are not `complete`; without `keep` the claim is that the value lies below 0.
    """
    verdict = judge_order(flip(interval, keep)) if complete else "SHORT"
    text = format_interval(interval, digits)
    return TableRow(quantity, *cells, min(map(len, parts)), verdict, recomputed=recomputed, interval=text)


def format_interval(interval: Interval | None, digits: int = 2) -> str:
    """An interval in a table."""
    return "-" if interval is None else f"[{format_score(interval[0], digits)}, {format_score(interval[1], digits)}]"


def format_score(value: float, digits: int = 2) -> str:
    """A score for a table: no more digits than mean anything."""
    return f"{value:.{digits}f}" if abs(value) < 100 else f"{value:,.0f}"


def format_scores(values: Sequence[float]) -> str:
    """A mean score with the sample standard deviation over seeds where there are two."""
    if not values:
        return "-"
    spread = stats.std(values)
    return format_score(stats.mean(values)) + ("" if spread is None else f" ± {format_score(spread)}")


def coverage(path: Path) -> float:
    """Share of the places visited at least once, at the end of the run, from the saved visit counts."""
    saved = checkpoint.load(RunFolder(path).checkpoints, on_skip=lambda text: None)
    return float((saved.state["collector"]["visits"] > 0).mean())


def goal_step(path: Path) -> int | None:
    """Agent steps until an episode first ended with a positive return; None if none did."""
    columns = read_episodes(RunFolder(path).episodes).columns
    pairs = zip(columns.get("step", []), columns.get("episodic_return", []), strict=True)
    return next((int(step) for step, total in pairs if total > 0), None)


def late_mean(path: Path, metric: str, share: float) -> float:
    """Mean of a metric over the last `share` of a run's rows that have it; NaN where none has."""
    values = [value for value in read_metrics(RunFolder(path).metrics).columns.get(metric, []) if not math.isnan(value)]
    late = values[len(values) - max(1, round(share * len(values))) :]
    return sum(late) / len(late) if late else math.nan


def measure_methods(results: Results, game: str, names: Sequence[ArmName]) -> list[TableRow]:
    """One row for each method that was run, without a verdict."""
    rows = []
    for name in names:
        raw = results.raw(name, game)
        if raw:
            interval = bootstrap_interval(raw, np.random.default_rng(0))
            rows.append(
                TableRow(f"{game}: {name}", "-", format_scores(raw), len(raw), interval=format_interval(interval))
            )
    return rows


def measure_other_methods(results: Results, games: Sequence[str], names: Sequence[ArmName]) -> list[TableRow]:
    """Rows for what else is in the data on these games."""
    rest = sorted(set(results.scores) - set(names))
    return [row for game in games for row in measure_methods(results, game, rest)]


def compare_with_best(
    results: Results, game: str, ours: ArmName, rivals: Sequence[ArmName]
) -> tuple[bool, ArmName, Interval | None]:
    """Whether ours has the highest mean, the best of the others, and the interval of ours minus that one."""
    held = [name for name in rivals if results.raw(name, game)]
    best = max(held, key=lambda name: mean(results.raw(name, game)))
    mine, theirs = results.raw(ours, game), results.raw(best, game)
    return mean(mine) > mean(theirs), best, mean_difference(mine, theirs)


def flip(interval: Interval | None, keep: bool) -> Interval | None:
    """The interval, or that of the negative value, so that the claim is above 0."""
    return interval if interval is None or keep else (-interval[1], -interval[0])


def count_wins(mine: Scores, *others: Scores) -> float:
    """In how many tasks the mean over seeds is above every other method's; all (seeds, tasks)."""
    best = np.max([other.mean(axis=0) for other in others], axis=0)
    return float((mine.mean(axis=0) > best).sum())


def list_names(names: Sequence[str], most: int = 6) -> str:
    """A few names and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
