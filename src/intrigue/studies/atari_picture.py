"""Learning curves, one panel per game: a thin line per seed, a strong one for their mean.

A method has the same colour in every panel of every study; what was changed in it (noise) changes the dash. Random play
and a person are dashed lines where they lie within the panel, and numbers above it always.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intrigue.report.charts import COLORS, drawing, finish, new_figure, short_count
from intrigue.run.atomic import write_file
from intrigue.scores import ATARI_57
from intrigue.studies.curve_names import Name
from intrigue.studies.curves import Array, Curve
from intrigue.studies.results import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FIXED = {
    "nnm-atari": COLORS[0],
    "disagreement-atari": COLORS[1],
    "icm-atari": COLORS[2],
    "rnd-atari": COLORS[3],
    "nnm-literal-atari": COLORS[4],
    "nnm-centered-atari": COLORS[5],
    "random-atari": "#7F7F7F",
    "none-atari": "#333333",
}
SPARE = ("#8C564B", "#BCBD22", "#17BECF", "#9467BD")  # for presets without a colour of their own
DASHES = ("-", (0, (4, 1.6)), (0, (1.2, 1.2)), "-.")
PANEL = (3.3, 2.5)  # inches
POINTS = 200  # a panel is some 500 pixels wide


def draw_curves(results: Results, folder: Path, title: str) -> list[Path]:
    """The picture written into `folder` as curves.png and curves.svg."""
    games = sorted({curve.game for curve in results.curves})
    names = sorted(results.scores)
    columns = min(len(games), 3 if len(games) <= 9 else 5)
    rows = math.ceil(len(games) / columns)
    with drawing():
        # A single narrow panel would cut the title and the legend.
        figure = new_figure(max(6.6, PANEL[0] * columns), PANEL[1] * rows + 0.8 + 0.22 * math.ceil(len(names) / 2))
        panels = figure.subplots(rows, columns, squeeze=False)
        for place, axes in enumerate(panels.flat):
            if place < len(games):
                _panel(axes, [curve for curve in results.curves if curve.game == games[place]], names)
                axes.set_xlabel("agent steps" if place + columns >= len(games) else "")
                axes.set_ylabel("raw return" if place % columns == 0 else "")
            else:
                axes.set_visible(False)
        figure.suptitle(f"{title}\nmean return of the last 100 training episodes", fontsize=12)
        figure.legend(handles=_handles(names), loc="outside lower center", ncols=2, handlelength=2.8, fontsize=10)
        picture = finish(figure, "curves", title, "")
    for suffix, data in (("png", picture.png), ("svg", picture.svg)):
        write_file(folder / f"curves.{suffix}", data)
    return [folder / "curves.png", folder / "curves.svg"]


def style_of(names: Sequence[Name], name: Name) -> tuple[str, Any]:
    """Colour by preset, dash by what was changed in it."""
    base = name.preset.removesuffix("-int-ext")
    others = sorted({each.preset for each in names if each.preset.removesuffix("-int-ext") not in FIXED})
    color = FIXED[base] if base in FIXED else SPARE[others.index(name.preset) % len(SPARE)]
    changed = sorted({each.changes for each in names if each.preset == name.preset} | {""})
    return color, DASHES[changed.index(name.changes) % len(DASHES)]


def mean_curve(curves: Sequence[Curve]) -> tuple[Array, Array]:
    """The mean over seeds on a common grid, up to where the shortest ends and from where all have a score."""
    begins = [curve.steps[~np.isnan(curve.returns)] for curve in curves]
    low, high = max(steps[0] for steps in begins), min(steps[-1] for steps in begins)
    grid = np.linspace(low, high, POINTS) if high > low else np.asarray([high])
    values = [np.interp(grid, *_measured(curve)) for curve in curves]
    return grid, np.asarray(np.mean(values, axis=0))


def _measured(curve: Curve) -> tuple[Array, Array]:
    known = ~np.isnan(curve.returns)
    return curve.steps[known], curve.returns[known]


def _panel(axes: Axes, curves: Sequence[Curve], names: Sequence[Name]) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for name in names:
        mine = [curve for curve in curves if curve.name == name]
        if not mine:
            continue
        color, dash = style_of(names, name)
        for curve in mine if len(mine) > 1 else ():
            axes.plot(*_measured(curve), color=color, linewidth=0.7, alpha=0.35)
        steps, values = mean_curve(mine)
        axes.plot(steps, values, color=color, linestyle=dash, linewidth=2.0, marker="o" if len(steps) == 1 else "")
    scale = ATARI_57[curves[0].game]
    axes.set_title(curves[0].game, fontsize=11)
    axes.set_title(
        f"random {scale.random:g}, human {scale.human:g}", fontsize=8, color="#555555", loc="right", weight=400
    )
    axes.set_xlim(left=0)
    axes.margins(x=0.02, y=0.08)
    low, high = axes.get_ylim()
    for value, word in ((scale.random, "random"), (scale.human, "human")):
        if low <= value <= high:
            axes.axhline(value, color="#9A9A9A", linewidth=1.0, linestyle=(0, (5, 4)), zorder=0)
            text: dict[str, Any] = {"fontsize": 8, "color": "#777777", "ha": "right", "va": "bottom"}
            axes.annotate(word, (0.99, value), xycoords=("axes fraction", "data"), **text)
    axes.set_ylim(low, high)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_count(value)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_count(value)))
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_locator(MaxNLocator(5))


def _handles(names: Sequence[Name]) -> list[Any]:
    from matplotlib.lines import Line2D

    made = []
    for name in names:
        color, dash = style_of(names, name)
        made.append(Line2D([], [], color=color, linestyle=dash, linewidth=2.0, label=str(name)))
    return made
