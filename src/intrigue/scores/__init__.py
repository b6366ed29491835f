"""Atari scores: what random play and a person reach, normalised scores, aggregates with intervals. Knows no torch."""

from intrigue.scores.aggregate import (
    AGGREGATES,
    Interval,
    aggregates,
    difference_interval,
    games_interval,
    iqm,
    joint_interval,
    mean,
    median,
    seeds_interval,
)
from intrigue.scores.normalized import above_human, normalised, superhuman
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
    "above_human",
    "aggregates",
    "difference_interval",
    "games_interval",
    "iqm",
    "joint_interval",
    "mean",
    "median",
    "normalised",
    "seeds_interval",
    "superhuman",
]
