"""Where agents went in a maze: visits of every cell in one color scale for all arms, logarithmic.

A cell's number is its visits averaged over the arm's counted runs. Cells no run entered are white, walls gray; the
scale runs from bright (few) to dark (many) and is legible without color vision and in gray.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from intrigue.envs.maze import Maze
from intrigue.report.arms import ArmRuns
from intrigue.report.charts import make_figure
from intrigue.report.numbers import coverage, estimate_arm
from intrigue.report.text import figure_text, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOR_MAP = "viridis_r"
WALL_COLOR, UNSEEN_COLOR, GOAL_COLOR = "#9B9B9B", "#FFFFFF", "#D55E00"
PANEL_INCHES = (3.5, 4.2)

Grid = NDArray[np.float64]


def average_visits(arm: ArmRuns, maze: Maze) -> Grid | None:
    """Mean visits per cell, (side, side), NaN in walls; None when a counted run has no count of visits."""
    visits = [run.visits for run in arm.counted]
    if not visits or any(each is None or len(each) != maze.places for each in visits):
        return None
    grid = np.full(maze.walls.shape, np.nan)
    grid[~maze.walls] = np.mean([each for each in visits if each is not None], axis=0)
    return grid


def collect_visit_grids(arms: Sequence[ArmRuns], maze: Maze) -> list[tuple[ArmRuns, Grid]]:
    """Every arm whose visits are known, with them."""
    pairs = [(arm, average_visits(arm, maze)) for arm in arms]
    return [(arm, grid) for arm, grid in pairs if grid is not None and np.nansum(grid) > 0]


def shared_scale(grids: Sequence[Grid]) -> tuple[float, float]:
    """The least and the largest positive number in any of them."""
    positive = np.concatenate([grid[grid > 0] for grid in grids])
    low, high = float(positive.min()), float(positive.max())
    return low, max(high, low * 1.01)  # one single value still needs a scale of some width


def draw_maze(panels: Sequence[tuple[ArmRuns, Grid]], maze: Maze, scale: tuple[float, float]) -> Figure:
    """The arms side by side above one color bar."""
    from matplotlib.colors import LogNorm

    width, height = PANEL_INCHES
    figure = make_figure(width * len(panels), height)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    norm = LogNorm(*scale)
    image: Any = None
    for place, (arm, grid) in zip(axes, panels, strict=True):
        image = _draw_panel(place, arm, grid, maze, norm)
    bar = figure.colorbar(image, ax=list(axes), location="bottom", shrink=0.9 if len(panels) == 1 else 0.5, pad=0.02)
    bar.set_label("visits per run (log scale)")
    bar.outline.set_visible(False)
    bar.ax.minorticks_off()
    return figure


def _draw_panel(axes: Any, arm: ArmRuns, grid: Grid, maze: Maze, norm: Any) -> Any:
    from matplotlib.colors import ListedColormap

    axes.imshow(np.where(maze.walls, 1.0, np.nan), cmap=ListedColormap([WALL_COLOR]), interpolation="nearest")
    image = axes.imshow(np.where(grid > 0, grid, np.nan), cmap=COLOR_MAP, norm=norm, interpolation="nearest")
    for (row, column), mark, color in ((maze.start, "o", UNSEEN_COLOR), (maze.goal, "*", GOAL_COLOR)):
        size = 7 if mark == "o" else 13
        axes.plot(column, row, mark, color=color, markersize=size, markeredgecolor="black", markeredgewidth=1.0)
    axes.set_title(f"{figure_text(arm.label)}\n{estimate_arm(arm, coverage).text(percent)}", fontsize=11)
    axes.set_axis_off()
    return image
