"""The loggers that metrics can be sent to, each in the extra of its name.

tensorboard   scalars below the run folder: `tensorboard --logdir runs`
wandb         Weights & Biases: project `intrigue`, one run for each of ours, its files in `wandb/` of the run folder;
              WANDB_MODE=offline sends nothing; WANDB_PROJECT and WANDB_ENTITY choose another project
trackio       project `intrigue` in its own local database, `trackio show` is its page
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import json
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from intrigue.errors import CheckpointError
from intrigue.run import atomic, disk
from intrigue.run.folder import RunFolder
from intrigue.run.names import parse_seed_name

PROJECT = "intrigue"
LIMIT = 4096  # bytes of sinks.json; ours, far above what is written


class MetricLogger(Protocol):
    """Takes the metrics of one logged step."""

    def write(self, step: int, frame: int, wall_seconds: float, metrics: Mapping[str, float]) -> None: ...
    def sync(self) -> None: ...
    def close(self, *, complete: bool) -> None: ...


class Identity(NamedTuple):
    """Id and name of a run with a logger; the same after a resume, wherever the folder is then."""

    id: str
    name: str


def read_identity(folder: RunFolder) -> Identity:
    """The identity in sinks.json, created at the first call.

    Raises:
        CheckpointError: that file is damaged.
    """
    if not os.path.lexists(folder.sinks):
        path = folder.path.resolve()
        # A seed's folder name alone is ambiguous.
        name = path.name if parse_seed_name(path.name) is None else f"{path.parent.name}-{path.name}"
        identity = Identity(secrets.token_hex(8), name)
        atomic.write_file(folder.sinks, json.dumps(identity._asdict()).encode() + b"\n")
        return identity
    try:
        fields = json.loads(disk.read_whole(folder.sinks, LIMIT))
        return Identity(str(fields["id"]), str(fields["name"]))
    except (ValueError, TypeError, KeyError, CheckpointError) as error:
        raise CheckpointError(f"{folder.sinks} is damaged; remove it to begin anew there") from error


class TensorBoardLogger:
    """One point of each metric's curve for every row."""

    def __init__(self, folder: RunFolder, config: Mapping[str, Any], step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Hides what was written beyond the step that a run is resumed from.
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


class WandbLogger:
    """One row of wandb's history for every row; curves are drawn over `step`.

    wandb's own count of rows cannot go back, as steps do after a resume; so it is not used.
    """

    def __init__(self, folder: RunFolder, config: Mapping[str, Any], step: int) -> None:
        import wandb

        identity = read_identity(folder)
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=identity.id,
            name=identity.name,
            dir=str(folder.path),
            config=dict(config),
            resume="allow",
            reinit="create_new",  # seeds that train together have a run each
            settings=wandb.Settings(console="off"),  # our output is not uploaded
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


class TrackioLogger:
    """One row of trackio's table for every row."""

    def __init__(self, folder: RunFolder, config: Mapping[str, Any], step: int) -> None:
        import trackio

        begin = functools.partial(
            trackio.init,
            project=os.environ.get("TRACKIO_PROJECT", PROJECT),
            name="{1}-{0}".format(*read_identity(folder)),  # it resumes runs by their name
            config=dict(config),
            resume="allow",
            embed=False,
        )
        # It prints to stdout, which is for data, and ends the run begun in the same context: seeds need one each.
        with contextlib.redirect_stdout(sys.stderr):
            self._run: Any = contextvars.Context().run(begin)

    def write(self, step: int, frame: int, wall_seconds: float, metrics: Mapping[str, float]) -> None:
        """Send the row."""
        self._run.log({"frame": frame, "wall_seconds": wall_seconds, **metrics}, step=step)

    def sync(self) -> None:
        """trackio sends by itself."""

    def close(self, *, complete: bool) -> None:
        """Wait until all is sent; trackio has no state for failed runs."""
        with contextlib.redirect_stdout(sys.stderr):
            self._run.finish()


TRACKERS: Mapping[str, Callable[[RunFolder, Mapping[str, Any], int], MetricLogger]] = {
    "tensorboard": TensorBoardLogger,
    "wandb": WandbLogger,
    "trackio": TrackioLogger,
}
