"""The tables of a run while it trains: a row per update, finished episode and evaluation; and the metrics to show."""

from __future__ import annotations

from collections import deque

from intrigue.run.folder import RunFolder
from intrigue.run.logging.csv_files import EpisodesCsv, MetricsCsv, read_episodes, truncate_after
from intrigue.run.logging.loggers import MetricLoggers
from intrigue.types import Metrics, Progress

# The window of the Disagreement and baselines logs: the mean over the last 100 finished episodes.
WINDOW = 100


class Journal:
    """metrics.csv, episodes.csv and eval.csv of one run, truncated to its current step; metrics go to `copies` too."""

    def __init__(self, folder: RunFolder, step: int, frames_per_step: int, loggers: MetricLoggers) -> None:
        self.frames_per_step = frames_per_step
        tables = (folder.metrics, folder.episodes, folder.evaluations)
        self.notes = [note for path in tables for note in truncate_after(path, step)]
        past = read_episodes(folder.episodes).columns if folder.episodes.exists() else {}
        self.count = len(past.get("step", []))
        self.returns = deque(past.get("episodic_return", []), maxlen=WINDOW)
        self.lengths = deque(past.get("length", []), maxlen=WINDOW)
        self._metrics = MetricsCsv(folder.metrics)
        self._episodes = EpisodesCsv(folder.episodes)
        self._evaluations = MetricsCsv(folder.evaluations)
        self._loggers = loggers
        self._shown: Metrics = {}

    def record(self, progress: Progress, coverage: float | None, wall_seconds: float) -> Metrics:
        """Write the progress of one step; the metrics to show now."""
        frame = progress.step * self.frames_per_step
        for episode in progress.episodes:
            self._episodes.write(episode, episode.step * self.frames_per_step)
            self.returns.append(episode.episodic_return)
            self.lengths.append(episode.length)
            self.count += 1
        if progress.metrics:
            row: Metrics = {
                "charts/episodic_return": _mean(self.returns),
                "charts/episodic_length": _mean(self.lengths),
                "charts/episodes": float(self.count),
                **({"charts/coverage": coverage} if coverage is not None else {}),
                **progress.metrics,
            }
            self._metrics.write(progress.step, frame, wall_seconds, row)
            self._loggers.write(progress.step, frame, wall_seconds, row)
            self._shown = row
        return self._shown

    def record_evaluation(self, step: int, metrics: Metrics, wall_seconds: float) -> None:
        """Write the result of an evaluation."""
        self._evaluations.write(step, step * self.frames_per_step, wall_seconds, metrics)
        self._loggers.write(step, step * self.frames_per_step, wall_seconds, metrics)

    def sync(self) -> None:
        """Return when every row so far is on disk."""
        self._evaluations.sync()
        self._metrics.sync()
        self._episodes.sync()
        self._loggers.sync()

    def close(self) -> None:
        """Close the tables."""
        self._evaluations.close()
        self._metrics.close()
        self._episodes.close()


def _mean(values: deque[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
