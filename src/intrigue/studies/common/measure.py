"""Figures read from a finished run's folder, for studies to compare."""

from __future__ import annotations

import math
from pathlib import Path

from intrigue.run import checkpoint
from intrigue.run.folder import RunFolder
from intrigue.run.logging.csv_files import read_episodes, read_metrics


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
