"""A run on disk as a value: where it is, what it was told to do, what it measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from intrigue.config.run import RunConfig
from intrigue.run.checkpoint import digest
from intrigue.run.folder import RunFolder
from intrigue.run.logging.csv_files import read_episodes, read_metrics


@dataclass(frozen=True)
class Run:
    """What `intrigue.train` gives back."""

    path: Path
    config: RunConfig
    step: int

    def metrics(self) -> dict[str, list[float]]:
        """Every column of metrics.csv."""
        return read_metrics(RunFolder(self.path).metrics).columns

    def episodes(self) -> dict[str, list[float]]:
        """Every column of episodes.csv."""
        return read_episodes(RunFolder(self.path).episodes).columns

    def evaluations(self) -> dict[str, list[float]]:
        """Every column of eval.csv; none where nothing was evaluated."""
        return read_metrics(RunFolder(self.path).evaluations).columns

    def digest(self) -> str:
        """One hash of the whole training state."""
        return digest(RunFolder(self.path).checkpoints)
