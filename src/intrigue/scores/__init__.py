"""Scores: Atari's references and normalised scores, published tables, statistics with intervals. Imports no torch."""

from intrigue.scores.normalized import above_human, normalised, superhuman
from intrigue.scores.stats import (
    AGGREGATES,
    Interval,
    Scores,
    bootstrap_interval,
    compute_aggregates,
    difference_interval,
    iqm,
    joint_interval,
    mean,
    median,
)
from intrigue.scores.tables import ATARI_57, PAPER_26, PAPER_COLUMNS, PRINTED, PaperRow, Reference

__all__ = [
    "AGGREGATES",
    "ATARI_57",
    "PAPER_26",
    "PAPER_COLUMNS",
    "PRINTED",
    "Interval",
    "PaperRow",
    "Reference",
    "Scores",
    "above_human",
    "bootstrap_interval",
    "compute_aggregates",
    "difference_interval",
    "iqm",
    "joint_interval",
    "mean",
    "median",
    "normalised",
    "superhuman",
]
