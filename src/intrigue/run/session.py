"""An open run: its folder and parts, its journal, snapshots and evaluations, its checkpoints."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager

from intrigue.config.run import RunConfig
from intrigue.run import checkpoint
from intrigue.run.checkpoint import snapshot
from intrigue.run.checkpoint.snapshot import collect_weights
from intrigue.run.folder import Run, RunFolder, mark_done
from intrigue.run.logging.console import escape_control
from intrigue.run.logging.journal import Journal
from intrigue.run.logging.loggers import MetricLoggers
from intrigue.training.evaluate import Evaluator
from intrigue.training.loops import AnyParts
from intrigue.types import Metrics, Progress


class Stopwatch:
    """Counts the seconds in which it runs."""

    def __init__(self, seconds: float) -> None:
        self._before, self._since = seconds, 0.0
        self._runs = False

    @property
    def seconds(self) -> float:
        """Seconds counted so far."""
        return self._before + (time.monotonic() - self._since if self._runs else 0.0)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """A scope whose seconds are counted."""
        self._since, self._runs = time.monotonic(), True
        try:
            yield
        finally:
            self._before, self._runs = self.seconds, False


class RunSession:
    """One run, open from the current step of its parts, which it closes. Later rows are cut off its tables."""

    def __init__(self, folder: RunFolder, parts: AnyParts, cfg: RunConfig, wall_seconds: float = 0.0) -> None:
        self.folder, self.parts, self.cfg = folder, parts, cfg
        self.step = parts.collector.step_count
        self._clock = Stopwatch(wall_seconds)
        self._open = contextlib.ExitStack()
        self._open.callback(parts.close)
        with contextlib.ExitStack() as failed:
            failed.callback(self._open.close)
            pool = parts.collector.pool
            self._loggers = MetricLoggers(cfg.run.sinks, folder, cfg.to_json(), self.step)
            failed.callback(self._loggers.close, complete=False)
            self._journal = self._open.enter_context(
                contextlib.closing(Journal(folder, self.step, pool.frames_per_step, self._loggers))
            )
            self._evaluator = self._open.enter_context(contextlib.closing(Evaluator(cfg, parts)))
            failed.pop_all()

    def timing(self) -> AbstractContextManager[None]:
        """A scope that counts as the run's wall time; waiting for other seeds does not."""
        return self._clock.running()

    @property
    def log_every(self) -> int:
        """Agent steps between two lines of metrics.csv."""
        return self.parts.agent.rollout_steps * self.parts.collector.pool.num_envs

    @property
    def notes(self) -> list[str]:
        """A note on each table that was truncated."""
        return self._journal.notes

    def pop_warnings(self) -> list[str]:
        """A warning for each logger that failed since the last call."""
        return self._loggers.pop_warnings()

    def record(self, progress: Progress) -> Metrics:
        """Log the progress since the last call, take due snapshots, run a due evaluation; the metrics to show.

        However far apart two calls are, each snapshot step between them is taken once.
        """
        before, self.step = self.step, progress.step
        seconds = self._clock.seconds
        shown = self._journal.record(progress, self.parts.collector.coverage(), seconds)
        for mark in snapshot.steps_passed(self.cfg.run.snapshots, before, self.step):
            state = collect_weights(self.cfg, self.parts)
            snapshot.save(self.folder, mark, state, self.cfg.digest(), self.step)
        if self._evaluator.due(before, self.step):
            self._journal.record_evaluation(self.step, self._evaluator(self.step), seconds)
        return shown

    def save(self) -> None:
        """Flush the tables, then write a checkpoint."""
        self._journal.sync()
        save_state(self.folder, self.parts, self.cfg, wall_seconds=self._clock.seconds)

    def finish(self) -> Run:
        """Close the run and mark it as one that reached its last step."""
        self._open.close()
        run = mark_finished(self.folder, self.cfg, self.step)
        self._close_loggers(complete=True)  # last, because uploads may take long
        return run

    def close(self) -> None:
        """Close tables, environments and loggers; may be called again."""
        self._open.close()
        self._close_loggers(complete=False)

    def _close_loggers(self, *, complete: bool) -> None:
        self._loggers.close(complete=complete)
        for warning in self.pop_warnings():
            sys.stderr.write(f"{escape_control(warning)}\n")


def save_state(folder: RunFolder, parts: AnyParts, cfg: RunConfig, wall_seconds: float) -> None:
    """Write a checkpoint of the parts."""
    checkpoint.save(
        folder.checkpoints,
        parts.collector.step_count,
        parts.state_dict(),
        config_digest=cfg.digest(),
        meta={"wall_seconds": wall_seconds},
        keep=cfg.run.keep,
    )


def mark_finished(folder: RunFolder, cfg: RunConfig, step: int) -> Run:
    """Mark a run as one that reached its last step."""
    mark_done(folder, step, checkpoint.digest(folder.checkpoints))
    return Run(folder.path, cfg, step)
