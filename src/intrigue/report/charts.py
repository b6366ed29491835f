"""Line charts of metrics over time: one line per run, and the mean of an arm's runs.

The mean exists only where every run has a value, so that it is never the mean of the runs that went on longest. Long
lines are thinned to what a picture can show. The same input gives the same bytes.

Colors are those of Okabe and Ito (Color Universal Design, 2008), distinct for color-blind readers too; the reference
arms are gray and dashed, so that they never look like one more method. Charts are small with large letters, legible on
a phone.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from intrigue.errors import ConfigError
from intrigue.report.arms import ArmRuns
from intrigue.report.record import RunRecord
from intrigue.report.text import LEGEND_TEXT_LIMIT, figure_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D


POINTS = 400  # per line; ours: about one per pixel of a chart

Line = tuple[NDArray[np.float64], NDArray[np.float64]]  # steps and values, finite


@dataclass(frozen=True)
class ArmCurve:
    """What one arm did over time."""

    lines: tuple[Line, ...]
    mean: Line


def read_line(run: RunRecord, column: str) -> Line | None:
    """A metric or evaluation of one run where it was measured; None where it never was."""
    table = run.metrics if column in run.metrics else run.evaluations
    if column not in table:
        return None
    steps = np.asarray(table["step"], dtype=np.float64)
    values = np.asarray(table[column], dtype=np.float64)
    measured = np.isfinite(values)
    return (steps[measured], values[measured]) if measured.any() else None


def make_curve(runs: Sequence[RunRecord], column: str) -> ArmCurve | None:
    """The metric of several runs; None unless all of them have it."""
    lines = [line for run in runs if (line := read_line(run, column)) is not None]
    if not lines or len(lines) < len(runs):
        return None
    return ArmCurve(tuple(thin_line(line) for line in lines), thin_line(average_lines(lines)))


def average_lines(lines: Sequence[Line]) -> Line:
    """The mean at every step some line was measured at, within the span that all of them share."""
    first = max(float(steps[0]) for steps, _ in lines)
    last = min(float(steps[-1]) for steps, _ in lines)
    grid = np.unique(np.concatenate([steps for steps, _ in lines]))
    grid = grid[(grid >= first) & (grid <= last)]
    if not grid.size:
        return grid, grid
    return grid, np.mean([np.interp(grid, steps, values) for steps, values in lines], axis=0)


def thin_line(line: Line) -> Line:
    """At most `POINTS` points of the line, evenly chosen, first and last kept."""
    steps, values = line
    if len(steps) <= POINTS:
        return line
    chosen = np.unique(np.linspace(0, len(steps) - 1, POINTS).round().astype(int))
    return steps[chosen], values[chosen]


COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
PLAIN_COLOR, RANDOM_COLOR = "#333333", "#7F7F7F"
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so it is the same everywhere
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "intrigue",  # fixes the ids in SVG files, which are random otherwise
    "svg.fonttype": "path",  # letters as shapes: no text of a run becomes part of the SVG's markup
}
CHART_INCHES = (5.6, 3.9)
LEGEND_INCHES = 1.3  # of a chart's height; ours: a third. A higher legend makes the chart higher, not its curves flat
PNG_DPI = 200
MARGIN = 0.09  # inches around each panel: twice matplotlib's, whose labels touch the picture's edge


@dataclass(frozen=True)
class Picture:
    """One figure in both formats."""

    name: str
    title: str
    caption: str
    svg: bytes
    png: bytes


@contextlib.contextmanager
def use_style() -> Iterator[None]:
    """Our style on matplotlib's defaults, whatever the user's own settings are; put back after.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        import matplotlib.style
    except ImportError as error:
        raise ConfigError("matplotlib is not installed; add it with `pip install 'intrigue[report]'`.") from error
    with matplotlib.style.context(["default", STYLE]):
        yield


def make_figure(width: float, height: float) -> Figure:
    """An empty figure that lays itself out."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=MARGIN, h_pad=MARGIN))


def add_legend_below(figure: Figure, handles: Sequence[Line2D], columns: int, **style: Any) -> Legend:
    """The legend under a figure: in as few rows as its width and `columns` allow, each about as full as the others."""
    for rows in range(math.ceil(len(handles) / columns), len(handles) + 1):
        ncols = math.ceil(len(handles) / rows)
        legend = figure.legend(handles=handles, loc="outside lower center", ncols=ncols, **style)
        if ncols == 1 or legend.get_window_extent().width <= figure.bbox.width:
            break
        legend.remove()
    return legend


def render_picture(figure: Figure, name: str, title: str, caption: str) -> Picture:
    """The figure in both formats, without date or version inside."""
    svg, png = io.BytesIO(), io.BytesIO()
    figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    figure.set_layout_engine("none")  # the layout found for the first file holds for the second, at half the time
    figure.savefig(png, format="png", dpi=PNG_DPI, metadata={"Software": None})
    return Picture(name, title, caption, svg.getvalue(), png.getvalue())


def choose_line_style(arms: Sequence[ArmRuns], arm: ArmRuns) -> tuple[str, Any]:
    """Color and dash of an arm, the same in every chart of its task."""
    if arm.is_random:
        return RANDOM_COLOR, "--"
    if arm.is_plain:
        plain = [each.label for each in arms if each.is_plain]
        return PLAIN_COLOR, ("-.", ":")[plain.index(arm.label) % 2]
    place = [each.label for each in arms if each.is_curious].index(arm.label)
    return COLORS[place % len(COLORS)], ("-", "--", "-.", ":")[place // len(COLORS) % 4]


def draw_line_chart(
    arms: Sequence[ArmRuns], column: str, y_label: str, frames: float, as_share: bool = False
) -> Figure | None:
    """One line per run and a strong one for each arm's mean; None when no arm has the metric."""
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FuncFormatter

    figure = make_figure(*CHART_INCHES)
    axes = figure.add_subplot()
    handles = []
    for arm in arms:
        color, dash = choose_line_style(arms, arm)
        if _draw_arm(axes, arm, column, color, dash, frames):
            name = figure_text(arm.label, LEGEND_TEXT_LIMIT)
            handles.append(Line2D([], [], color=color, linestyle=dash, linewidth=2.2, label=name))
    if not handles:
        return None
    axes.set_xlabel("frames" if frames > 1 else "agent steps")
    axes.set_ylabel(y_label)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_short_count(value)))
    if as_share:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
        axes.set_ylim(bottom=0)
    elif axes.dataLim.height == 0:  # nothing but one value: room around it, no zoom into rounding
        axes.set_ylim(axes.dataLim.y0 - 1, axes.dataLim.y0 + 1)
    axes.set_xlim(left=0)
    axes.margins(x=0.02)
    legend = add_legend_below(figure, handles, columns=2, handlelength=2.6)
    beyond = legend.get_window_extent().height / figure.dpi - LEGEND_INCHES
    figure.set_figheight(CHART_INCHES[1] + max(0.0, beyond))
    return figure


def format_short_count(value: float) -> str:
    """An axis tick: 500, 20k, 1.5M."""
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _draw_arm(axes: Any, arm: ArmRuns, column: str, color: str, dash: str, frames: float) -> bool:
    """Whether the arm had anything to draw."""
    drawn = False
    counted = make_curve(arm.counted, column)
    if counted is not None:
        drawn = True
        for steps, values in counted.lines if len(counted.lines) > 1 else ():
            axes.plot(steps * frames, values, color=color, linewidth=0.8, alpha=0.4)
        steps, values = counted.mean
        axes.plot(steps * frames, values, color=color, linestyle=dash, linewidth=2.2, marker=_marker(len(steps)))
    lost = [] if counted is not None else arm.counted
    others = [run for run in arm.runs if run.state in ("running", "unfinished") and run not in arm.counted]
    for run in [*lost, *others]:
        line = read_line(run, column)
        if line is not None:
            drawn = True
            steps, values = thin_line(line)
            axes.plot(steps * frames, values, color=color, linewidth=0.9, linestyle=":", marker=_marker(len(steps)))
    return drawn


def _marker(points: int) -> str:
    """A line of one point cannot be seen without a mark."""
    return "o" if points == 1 else ""
