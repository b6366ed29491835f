"""A run under way: its folder and parts, what it writes down, when its weights are kept and its policy is played."""

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
    """Seconds that are counted while it runs."""

    def __init__(self, seconds: float) -> None:
        self._before, self._since = seconds, 0.0
        self._runs = False

    @property
    def seconds(self) -> float:
        """All counted so far."""
        return self._before + (time.monotonic() - self._since if self._runs else 0.0)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Count from here on."""
        self._since, self._runs = time.monotonic(), True
        try:
            yield
        finally:
            self._before, self._runs = self.seconds, False


class RunSession:
    """One run from where its parts stand; it closes them. Results beyond that step are cut off its tables."""

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
        """The time in which the run counts its seconds; while it waits for others it does not."""
        return self._clock.running()

    @property
    def log_every(self) -> int:
        """Agent steps between two lines of metrics.csv."""
        return self.parts.agent.rollout_steps * self.parts.collector.pool.num_envs

    @property
    def notes(self) -> list[str]:
        """What was cut off the tables, in words."""
        return self._journal.notes

    def pop_warnings(self) -> list[str]:
        """Which copies of the metrics failed since the last call."""
        return self._loggers.pop_warnings()

    def record(self, progress: Progress) -> Metrics:
        """Write down what happened since the last call, keep and play what fell due; the figures worth showing.

        However far apart two calls are, each mark between them is honoured once.
        """
        before, self.step = self.step, progress.step
        seconds = self._clock.seconds
        shown = self._journal.record(progress, self.parts.collector.coverage(), seconds)
        for mark in snapshot.due(self.cfg.run.snapshots, before, self.step):
            state = collect_weights(self.cfg, self.parts)
            snapshot.save(self.folder, mark, state, self.cfg.digest(), self.step)
        if self._evaluator.due(before, self.step):
            self._journal.record_evaluation(self.step, self._evaluator(self.step), seconds)
        return shown

    def save(self) -> None:
        """A checkpoint, and before it all it counts."""
        self._journal.sync()
        save_state(self.folder, self.parts, self.cfg, wall_seconds=self._clock.seconds)

    def finish(self) -> Run:
        """Say on disk that the run reached its last step; nothing more happens to it."""
        self._open.close()
        run = mark_finished(self.folder, self.cfg, self.step)
        self._close_loggers(complete=True)  # after all else: what is sent far away may take its time
        return run

    def close(self) -> None:
        """Let go of tables, environments and copies; may be called again."""
        self._open.close()
        self._close_loggers(complete=False)

    def _close_loggers(self, *, complete: bool) -> None:
        self._loggers.close(complete=complete)
        for warning in self.pop_warnings():
            sys.stderr.write(f"{escape_control(warning)}\n")


def save_state(folder: RunFolder, parts: AnyParts, cfg: RunConfig, wall_seconds: float) -> None:
    """A checkpoint of the parts as they are."""
    checkpoint.save(
        folder.checkpoints,
        parts.collector.step_count,
        parts.state_dict(),
        config_digest=cfg.digest(),
        meta={"wall_seconds": wall_seconds},
        keep=cfg.run.keep,
    )


def mark_finished(folder: RunFolder, cfg: RunConfig, step: int) -> Run:
    """The run, which is marked as one that reached its last step."""
    mark_done(folder, step, checkpoint.digest(folder.checkpoints))
    return Run(folder.path, cfg, step)
