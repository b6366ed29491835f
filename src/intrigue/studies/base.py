"""What a study declares, and what it concludes.

A study is one file: its arms (what is compared), its budget ladder, the paper's numbers, and the rule for its verdict:

    PASS    the claim holds at this budget
    SHORT   the claim cannot be judged at this budget: too few steps or seeds, or an interval that leaves it open
    FAIL    the claim does not hold

A result that disagrees with the paper is reported as it is.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

from intrigue.config import BOOKKEEPING, RunConfig, resolve

Verdict: TypeAlias = Literal["PASS", "SHORT", "FAIL"]
BudgetName: TypeAlias = Literal["smoke", "hour", "full"]


@dataclass(frozen=True)
class Budget:
    """How much a rung of the ladder spends: agent steps a run, seeds an arm."""

    steps: int
    seeds: int


@dataclass(frozen=True)
class Arm:
    """One thing compared: a label and the configuration layer it stands for, without seed and steps."""

    label: str
    layer: Mapping[str, Any]

    def config(self, budget: Budget, seed: int) -> RunConfig:
        """The run of this arm with this seed."""
        return resolve(self.layer, {"steps": budget.steps, "seed": seed})

    def digest(self, budget: Budget) -> str:
        """What the arm computes, without the seed; runs with another digest are never mixed with its own."""
        keeping = tuple(name for name in BOOKKEEPING if name != "steps")
        return self.config(budget, seed=0).digest(without=(*keeping, "seed"))


@dataclass(frozen=True)
class Row:
    """One line of a study's table."""

    quantity: str
    paper: str
    ours: str
    seeds: int
    verdict: Verdict | None = None  # None: a measurement that nothing was claimed about


@dataclass(frozen=True)
class Conclusion:
    """What came out: the table, what it means in words, and the files made."""

    headline: str
    rows: Sequence[Row]
    words: Sequence[str] = ()
    files: Sequence[Path] = field(default_factory=list)


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
