"""The drawings of Figure 1: the paper's picture (fold change) and the same curves in each measure's working range."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from intrigue.studies.fig1_numbers import Array, Fig1Numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Unit = Literal["fold", "range"]


@dataclass(frozen=True)
class Line:
    """How one measure looks: colors of Okabe and Ito, safe for the color blind, and markers for print in gray."""

    measure: str
    label: str
    color: str
    marker: str
    style: str = "-"


NUCLEAR = Line("nuclear", "nuclear norm (NNM)", "#0072B2", "o")
VARIANCE = Line("variance", "variance (Disagreement)", "#D55E00", "s")
CENTERED = Line("centered", "centered nuclear norm (ours)", "#56B4E9", "D", "--")
LINES: dict[Unit, tuple[Line, ...]] = {
    "fold": (NUCLEAR, VARIANCE, Line("log_l2", "log ℓ2 distance (APT)", "#009E73", "^"), CENTERED),
    "range": (NUCLEAR, VARIANCE, Line("log1p_l2", "log(1 + ℓ2²) distance (APT)", "#009E73", "^"), CENTERED),
}
TITLES = {"noise": "Noise on every entry", "outlier_row": "One outlying row"}
AXIS_WORDS = {"noise": "standard deviation of the noise", "outlier_row": "size of the outlier"}
CASE_WORDS = {
    "shared": "Five rows around a shared mean",
    "independent": "Five independent rows",
}
UNIT_WORDS = {"fold": "value ÷ clean value (log scale)", "range": "position in working range"}
HEADLINES = {
    "fold": "How much a spoiled input changes each measure, relative to its clean value",
    "range": "How far a spoiled input moves each measure in its working range\n(0: equal rows, 1: independent rows)",
}
FOLD_TICKS = {"shared": (1, 2, 5, 10, 20, 50, 100), "independent": (1, 1.2, 1.5, 2)}


def draw(numbers: Fig1Numbers, folder: Path) -> list[Path]:
    """The pictures written into `folder`: fig1 and fig1_range, each as PNG and SVG."""
    from matplotlib import rc_context

    folder.mkdir(parents=True, exist_ok=True)
    units: tuple[tuple[Unit, str], ...] = (("fold", "fig1"), ("range", "fig1_range"))
    paths = []
    # A fixed salt and no date inside an SVG: the same numbers give the same file.
    with rc_context({"svg.hashsalt": "fig1"}):
        for unit, name in units:
            figure = _figure(numbers, unit)
            for suffix in ("png", "svg"):
                path = folder / f"{name}.{suffix}"
                figure.savefig(path, dpi=160, metadata={"Date": None} if suffix == "svg" else None)
                paths.append(path)
    return paths


def _figure(numbers: Fig1Numbers, unit: Unit) -> Figure:
    """One picture, two kinds of rows by two ways to spoil them; drawn without pyplot, so nothing global is touched."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 6.8), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(2, 2, sharex=True, sharey="row")
    for row, case in enumerate(("shared", "independent")):
        for column, spoiler in enumerate(TITLES):
            _panel(grid[row, column], numbers, case, spoiler, unit)
            if row == 0:
                grid[row, column].set_title(TITLES[spoiler], fontsize=12)
            if row == 1:
                grid[row, column].set_xlabel(AXIS_WORDS[spoiler])
        grid[row, 0].set_ylabel(f"{CASE_WORDS[case]}\n{UNIT_WORDS[unit]}")
    figure.suptitle(HEADLINES[unit], fontsize=12.5)
    marks, labels = grid[0, 0].get_legend_handles_labels()
    band = f"lines: mean of {numbers.draws} draws; bands: 95 % of the draws"
    figure.legend(marks, labels, loc="outside lower center", ncols=2, frameon=False, title=band, title_fontsize=9)
    return figure


def _panel(axes: Axes, numbers: Fig1Numbers, case: str, spoiler: str, unit: Unit) -> None:
    for line in LINES[unit]:
        curves = numbers.fold if unit == "fold" else numbers.range_share
        _curve(axes, numbers.sizes, curves(case, spoiler, line.measure), line)
    if unit == "fold":
        _fold_axis(axes, FOLD_TICKS[case])
    else:
        axes.axhline(1.0, color="0.75", linewidth=0.8, zorder=0)
    axes.set_xlim(-0.01, 1.02)
    axes.grid(axis="y", color="0.92")
    axes.spines[["top", "right"]].set_visible(False)


def _curve(axes: Axes, sizes: tuple[float, ...], curves: Array, line: Line) -> None:
    low, high = np.percentile(curves, [2.5, 97.5], axis=1)
    axes.fill_between(sizes, low, high, color=line.color, alpha=0.15, linewidth=0)
    axes.plot(
        sizes,
        curves.mean(axis=1),
        color=line.color,
        linestyle=line.style,
        marker=line.marker,
        markevery=4,
        markersize=5,
        linewidth=1.8,
        label=line.label,
    )


def _fold_axis(axes: Axes, ticks: tuple[float, ...]) -> None:
    """A logarithmic axis that says 2×, 10×, not 10^0.3."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
