"""trackio: project `intrigue` in its own local database, `trackio show` is its page."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
import sys
from collections.abc import Mapping
from typing import Any

from intrigue.run.folder import RunFolder
from intrigue.run.logging.loggers import identity

PROJECT = "intrigue"


class TrackioCopy:
    """One row of trackio's table for every row."""

    def __init__(self, folder: RunFolder, config: Mapping[str, Any]) -> None:
        import trackio

        begin = functools.partial(
            trackio.init,
            project=os.environ.get("TRACKIO_PROJECT", PROJECT),
            name="{1}-{0}".format(*identity(folder)),  # it takes runs up by their name
            config=dict(config),
            resume="allow",
            embed=False,
        )
        # It greets on stdout, where data goes, and would end the run that this context has begun: seeds need one each.
        with contextlib.redirect_stdout(sys.stderr):
            self._run: Any = contextvars.Context().run(begin)

    def write(self, step: int, frame: int, wall_seconds: float, metrics: Mapping[str, float]) -> None:
        """Send the row."""
        self._run.log({"frame": frame, "wall_seconds": wall_seconds, **metrics}, step=step)

    def sync(self) -> None:
        """trackio sends by itself."""

    def close(self, *, complete: bool) -> None:
        """Wait until all is sent; trackio knows no runs that failed."""
        with contextlib.redirect_stdout(sys.stderr):
            self._run.finish()


def open_copy(folder: RunFolder, config: Mapping[str, Any], step: int) -> TrackioCopy:
    """The copy of a run that is at this step."""
    return TrackioCopy(folder, config)
