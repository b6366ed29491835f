"""Published scores of URLB's twelve tasks after 2M frames without a reward and 100k with one, from states, as data.

urlb_paper.csv   the paper's Table 4 exactly as printed (Chen et al. 2022, arXiv:2205.10484). ICM, RND and APS are
                 quoted from URLB (arXiv:2110.15191), whose ± are standard errors over ten seeds; Disagreement, APT
                 and NNM are its own runs, whose ± it calls standard deviations, over seeds it does not count.
                 `bold` is the column it sets in bold.
urlb_rerun.csv   an independent rerun of URLB's methods and CIC, next to its own method: the table in the README of MOSS
                 (Zhao et al. 2022, arXiv:2210.06702). It lacks jaco_reach_top_right. Its "ICM APT" is APT here, the
                 one whose encoder is ICM's; it does not say what its ± are.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from intrigue.errors import ConfigError
from intrigue.scores.normalized import EXPERTS
from intrigue.scores.stats import Scores

PAPER_METHODS = ("ICM", "RND", "APS", "Disagreement", "APT", "NNM")
QUOTED = ("ICM", "RND", "APS")  # by the paper, from URLB
DOMAINS = ("walker", "quadruped", "jaco")


@dataclass(frozen=True, slots=True)
class Published:
    """A score as printed, with whatever its ± is."""

    score: float
    spread: float

    def __str__(self) -> str:
        return f"{self.score:g} ± {self.spread:g}"


Column = Mapping[str, Published]


def _columns(name: str, skipped: Sequence[str] = ()) -> dict[str, dict[str, Published]]:
    with Path(__file__).with_name(name).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    methods = [each for each in rows[0] if each not in ("task", *skipped)]
    return {method: {row["task"]: _cell(row[method]) for row in rows} for method in methods}


def _cell(text: str) -> Published:
    score, spread = text.split("±")
    return Published(float(score), float(spread))


def _bold() -> dict[str, str]:
    with Path(__file__).with_name("urlb_paper.csv").open(newline="", encoding="utf-8") as file:
        return {row["task"]: row["bold"] for row in csv.DictReader(file)}


PAPER_12: Mapping[str, Column] = _columns("urlb_paper.csv", skipped=("bold",))
PAPER_BOLD: Mapping[str, str] = _bold()
RERUN: Mapping[str, Column] = _columns("urlb_rerun.csv")
TASKS_12 = tuple(PAPER_BOLD)  # in the order of the paper's table
RERUN_TASKS = tuple(RERUN["ICM"])


def domain_of(task: str) -> str:
    """`walker` of `walker_run`."""
    return task.partition("_")[0]


def tasks_of(domain: str) -> list[str]:
    """The four tasks of a domain."""
    return [task for task in TASKS_12 if domain_of(task) == domain]


def shares(column: Column, tasks: Sequence[str]) -> Scores:
    """A column as shares of the experts' scores, (1, tasks): one "seed", since only means are printed.

    Raises:
        ConfigError: it lacks a task.
    """
    missing = [task for task in tasks if task not in column]
    if missing:
        raise ConfigError(f"this column has no score of {', '.join(missing)}. Accepted: {', '.join(column)}.")
    return np.asarray([[column[task].score / EXPERTS[task] for task in tasks]], dtype=np.float64)
