"""What studies of Atari and of control share: runs are exported to a file, and the table is made from such files.

So a table can be made just as well from results of elsewhere: `intrigue reproduce STUDY --from FILE.csv`.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Protocol, final

from intrigue.run.folder import RunFolder
from intrigue.studies.base import Budget, CanReadFiles, Conclusion, Study
from intrigue.studies.common.arm_names import ArmName
from intrigue.studies.common.results import Results
from intrigue.studies.common.run_records import LearningCurve, RecordFormat, gather_records, read_records


class BudgetLevel(Protocol):
    """What one budget of a study runs."""

    def budget(self, name: str) -> Budget:
        """The engine's view of it."""


def budgets_of(levels: Mapping[str, BudgetLevel]) -> dict[str, Budget]:
    """The budgets of these levels."""
    return {name: level.budget(name) for name, level in levels.items()}


class RecordStudy(Study, CanReadFiles, abc.ABC):
    """A study judged from the learning curves of runs, read at one common step."""

    records: ClassVar[RecordFormat]

    @final
    def conclude(self, runs: Mapping[str, Sequence[Path]], budget: Budget, out: Path) -> Conclusion:
        """Export the study's own runs, then read them like any others."""
        names = {path: self.name_arm(label, budget) for label, paths in runs.items() for path in paths}
        started = {path: name for path, name in names.items() if RunFolder(path).config.exists()}
        table = self.export(started, budget, out)
        conclusion = self.conclude_from(read_records(table, self.records), out)
        return replace(conclusion, files=[*conclusion.files, table])

    @final
    def conclude_files(self, sources: Sequence[Path], out: Path) -> Conclusion:
        """The table of what these files and folders hold."""
        runs = gather_records(sources, self.records)
        out.mkdir(parents=True, exist_ok=True)
        return self.conclude_from(runs, out)

    @final
    def conclude_from(self, runs: Sequence[LearningCurve], out: Path) -> Conclusion:
        """The table, a CSV file of scores and the pictures."""
        results = self.compare(runs)
        scores = self.write_scores(results, out / "scores.csv")
        conclusion = self.judge(results)
        pictures = self.draw(results, out)
        rows, words = list(conclusion.rows), [*conclusion.words, *results.notes]
        if results.small:
            # The paper claims nothing about laptops.
            rows = [replace(row, verdict=row.verdict and "SHORT") for row in rows]
            words.insert(0, "Laptop sizes: these scores cannot be compared with the paper's, so nothing is judged.")
        return replace(conclusion, rows=rows, words=words, files=[*pictures, scores])

    @abc.abstractmethod
    def name_arm(self, label: str, budget: Budget) -> ArmName:
        """The name in tables of the arm with this label."""

    @abc.abstractmethod
    def export(self, runs: Mapping[Path, ArmName], budget: Budget, out: Path) -> Path:
        """The file in `out` that now holds what these runs logged."""

    @abc.abstractmethod
    def compare(self, runs: Sequence[LearningCurve]) -> Results:
        """The scores of these runs. Raises ConfigError when there is none."""

    @abc.abstractmethod
    def write_scores(self, results: Results, path: Path) -> Path:
        """The path, now holding a row per run: its raw and its normalised score."""

    @abc.abstractmethod
    def judge(self, results: Results) -> Conclusion:
        """The table and its verdicts."""

    @abc.abstractmethod
    def draw(self, results: Results, out: Path) -> list[Path]:
        """The pictures, written into `out`."""
