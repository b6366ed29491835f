"""What a study declares, and what it concludes.

A study is one file: its arms (what is compared), its budgets, the paper's numbers, and the rule for its verdict:

    PASS    the claim holds at this budget
    SHORT   the claim cannot be judged at this budget: too few steps or seeds, or an interval that leaves it open
    FAIL    the claim does not hold

A result that disagrees with the paper is reported as it is.
"""

from __future__ import annotations

import abc
import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

from intrigue.config.run import BOOKKEEPING, RunConfig, resolve

Verdict: TypeAlias = Literal["PASS", "SHORT", "FAIL"]
BudgetName: TypeAlias = Literal["smoke", "hour", "full"]


@dataclass(frozen=True)
class Budget:
    """How much a study may spend: agent steps a run, seeds an arm."""

    steps: int
    seeds: int
    level: str = ""  # arms of another level are left out, so that a small budget can take fewer or smaller ones
    jobs: int = 0  # runs at a time where the command says nothing; 0: one per core
    together: bool = False  # all seeds of an arm in one process, for settings whose seeds can learn at once


@dataclass(frozen=True, eq=False)
class Arm:
    """One thing compared: a label and the configuration layer it stands for, without seed and steps."""

    label: str
    layer: Mapping[str, Any]
    level: str = ""  # the budget it belongs to; empty: all
    steps: int = 0  # agent steps where they are not the budget's
    # The pre-training whose newest snapshot is fine-tuned on the layer's environment. Arms that name an equal one share
    # its run of the same seed. The rest of their layer is unused: a fine-tuning takes it from that run.
    before: Arm | None = None

    def config(self, budget: Budget, seed: int) -> RunConfig:
        """The run of this arm with this seed; of a fine-tuning only environment, steps and seed count."""
        return resolve(self.layer, {"steps": self.steps or budget.steps, "seed": seed})

    def digest(self, budget: Budget) -> str:
        """What the arm computes, without the seed; runs with another digest are never mixed with its own."""
        return _digest(self, budget)


@functools.lru_cache(maxsize=1024)  # each fine-tuning asks for its pre-training
def _digest(arm: Arm, budget: Budget) -> str:
    if arm.before is not None:
        steps = arm.steps or budget.steps
        return hashlib.sha256(f"{_digest(arm.before, budget)} {arm.layer['env']} {steps}".encode()).hexdigest()
    keeping = tuple(name for name in BOOKKEEPING if name != "steps")
    return arm.config(budget, seed=0).digest(without=(*keeping, "seed"))


@dataclass(frozen=True)
class TableRow:
    """One line of a study's table."""

    quantity: str
    paper: str
    ours: str
    seeds: int
    verdict: Verdict | None = None  # None: a measurement that nothing was claimed about
    printed: str = "-"  # the paper's value, computed again from what it prints
    recomputed: str = "-"  # the paper's value, computed again from its own data with the right constants
    interval: str = "-"
    rerun: str = "-"  # what others found who ran the paper's methods again


# Fields of a row and their headings.
PLAIN_COLUMNS = {"quantity": "quantity", "paper": "paper", "ours": "ours", "seeds": "seeds", "verdict": "verdict"}
SCORE_COLUMNS = {
    "quantity": "quantity",
    "paper": "paper",
    "recomputed": "recomputed",
    "ours": "ours",
    "interval": "interval",
    "seeds": "seeds",
    "verdict": "verdict",
}


@dataclass(frozen=True)
class PaperTable:
    """A table that nothing is judged in: what others printed and what was found here, in their own form."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Conclusion:
    """What came out: the table, what it means in words, and the files made."""

    headline: str
    rows: Sequence[TableRow]
    words: Sequence[str] = ()
    files: Sequence[Path] = field(default_factory=list)
    columns: Mapping[str, str] = field(default_factory=lambda: PLAIN_COLUMNS)
    figures: Mapping[str, Any] = field(default_factory=dict)  # the numbers behind the words, for `--json`
    paper_tables: Sequence[PaperTable] = ()

    def cells(self, row: TableRow) -> list[str]:
        """The row's texts, column by column."""
        return [str(getattr(row, name) or "-") if name != "seeds" else str(row.seeds) for name in self.columns]


class Study(abc.ABC):
    """A comparison with a question, arms and a verdict."""

    title: ClassVar[str]
    budgets: ClassVar[Mapping[str, Budget]]

    @abc.abstractmethod
    def arms(self) -> Sequence[Arm]:
        """What is compared; empty for a study that trains nothing."""

    @abc.abstractmethod
    def conclude(self, runs: Mapping[str, Sequence[Path]], budget: Budget, out: Path) -> Conclusion:
        """The table and its verdicts from the finished runs of each arm, by label."""


class CanRecheckPaper(abc.ABC):
    """A study that can compute the paper's own numbers again without training anything."""

    @abc.abstractmethod
    def recheck(self) -> Conclusion:
        """The paper's numbers beside what follows from what it prints."""


class CanReadFiles(abc.ABC):
    """A study whose table can be made from files of results, wherever the runs were trained."""

    @abc.abstractmethod
    def conclude_files(self, sources: Sequence[Path], out: Path) -> Conclusion:
        """The table and the figures of what these files and folders of runs hold, as far as it goes.

        Nothing is written until everything has been read.
        """
