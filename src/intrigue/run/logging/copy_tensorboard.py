"""Scalars for TensorBoard, below the run folder: `tensorboard --logdir runs`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from intrigue.run.folder import RunFolder


class TensorBoardCopy:
    """One point of each metric's curve for every row."""

    def __init__(self, folder: RunFolder, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # What was written beyond the step that a run goes on from is hidden.
        purged = step + 1 if folder.tensorboard.exists() else None
        self._writer: Any = SummaryWriter(str(folder.tensorboard), purge_step=purged)

    def write(self, step: int, frame: int, wall_seconds: float, metrics: Mapping[str, float]) -> None:
        """Add the row."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def sync(self) -> None:
        """Write out what is waiting."""
        self._writer.flush()

    def close(self, *, complete: bool) -> None:
        """Write out what is waiting, and stop."""
        self._writer.close()


def open_copy(folder: RunFolder, config: Mapping[str, Any], step: int) -> TensorBoardCopy:
    """The copy of a run that is at this step."""
    return TensorBoardCopy(folder, step)
