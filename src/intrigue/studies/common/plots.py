"""What the pictures of Atari and of control share: panels, curves with their mean, legends, files.

A thin line per seed and a strong one for their mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intrigue.report.charts import format_short_count, make_figure, render_picture
from intrigue.run.atomic import write_file
from intrigue.studies.common.run_records import Array, LearningCurve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

SPARE = ("#8C564B", "#BCBD22", "#17BECF", "#9467BD")  # for methods without a colour of their own
REFERENCE_DASH = (0, (5, 4))
PANEL = (3.3, 2.7)  # inches
POINTS = 200  # a panel is some 500 pixels wide


def mean_curve(runs: Sequence[LearningCurve]) -> tuple[Array, Array]:
    """The mean over seeds on a common grid, up to where the shortest ends and from where all have a score."""
    known = [scored_points(run) for run in runs]
    low, high = max(steps[0] for steps, _ in known), min(steps[-1] for steps, _ in known)
    grid = np.linspace(low, high, POINTS) if high > low else np.asarray([high])
    return grid, np.asarray(np.mean([np.interp(grid, *points) for points in known], axis=0))


def scored_points(run: LearningCurve) -> tuple[Array, Array]:
    """Steps and returns where there is a return."""
    known = ~np.isnan(run.returns)
    return run.steps[known], run.returns[known]


def plot_runs(axes: Axes, runs: Sequence[LearningCurve], color: str, dash: Any = "-") -> None:
    """One method's runs, and their mean."""
    if not runs:
        return
    for run in runs if len(runs) > 1 else ():
        axes.plot(*scored_points(run), color=color, linewidth=0.7, alpha=0.35)
    steps, values = mean_curve(runs)
    axes.plot(steps, values, color=color, linestyle=dash, linewidth=2.0, marker="o" if len(steps) == 1 else "")


def make_panels(
    tasks: Sequence[str], columns: int, least_width: float, legend_height: float, labels: tuple[str, str]
) -> tuple[Figure, Iterator[tuple[Axes, str]]]:
    """A figure with a panel per task, its outer axes labelled once a panel was drawn; a narrow one would cut titles."""
    rows = math.ceil(len(tasks) / columns)
    figure = make_figure(max(least_width, PANEL[0] * columns), PANEL[1] * rows + legend_height)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)

    def draw_each() -> Iterator[tuple[Axes, str]]:
        for place, axes in enumerate(panels):
            if place >= len(tasks):
                axes.set_visible(False)
                continue
            yield axes, tasks[place]
            axes.set_xlabel(labels[0] if place + columns >= len(tasks) else "")
            axes.set_ylabel(labels[1] if place % columns == 0 else "")

    return figure, draw_each()


def format_counts(*axis_list: Any) -> None:
    """Ticks such as 20k on these axes."""
    from matplotlib.ticker import FuncFormatter

    for axis in axis_list:
        axis.set_major_formatter(FuncFormatter(lambda value, _: format_short_count(value)))


def line_handle(color: str, label: str, dash: Any = "-") -> Line2D:
    """A line of a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color=color, linestyle=dash, linewidth=2.0, label=label)


def write_picture(figure: Figure, folder: Path, name: str, title: str) -> list[Path]:
    """The figure written into `folder` as PNG and SVG."""
    picture = render_picture(figure, name, title, "")
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    for path, data in zip(paths, (picture.png, picture.svg), strict=True):
        write_file(path, data)
    return paths
