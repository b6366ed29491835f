"""Weights & Biases: project `intrigue`, one run for each of ours, its files in `wandb/` of the run folder.

WANDB_MODE=offline sends nothing; WANDB_PROJECT and WANDB_ENTITY choose another project.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from intrigue.run.folder import RunFolder
from intrigue.run.logging.loggers import identity

PROJECT = "intrigue"


class WandbCopy:
    """One row of wandb's history for every row; curves are drawn over `step`.

    wandb's own count of rows cannot go back, as steps do after a resume; so it is not used.
    """

    def __init__(self, folder: RunFolder, config: Mapping[str, Any]) -> None:
        import wandb

        known = identity(folder)
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=known.id,
            name=known.name,
            dir=str(folder.path),
            config=dict(config),
            resume="allow",
            reinit="create_new",  # seeds that train together have a run each
            settings=wandb.Settings(console="off"),  # what we print is ours
        )
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, frame: int, wall_seconds: float, metrics: Mapping[str, float]) -> None:
        """Send the row."""
        self._run.log({"step": step, "frame": frame, "wall_seconds": wall_seconds, **metrics})

    def sync(self) -> None:
        """wandb sends by itself."""

    def close(self, *, complete: bool) -> None:
        """Wait until all is sent."""
        self._run.finish(exit_code=0 if complete else 1)


def open_copy(folder: RunFolder, config: Mapping[str, Any], step: int) -> WandbCopy:
    """The copy of a run that is at this step."""
    return WandbCopy(folder, config)
