"""Learning curves, a thin line per seed, a strong one for their mean; a panel per game, or per game and preset.

A method has the same colour in every panel of every study; what was changed in it (noise) changes the dash. Random play
and a person are dashed lines where they lie within the panel, and numbers above it always.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intrigue.report.charts import COLORS, drawing, finish, legend_below, new_figure, short_count
from intrigue.run.atomic import write_file
from intrigue.scores import ATARI_57
from intrigue.studies.atari.results import Results
from intrigue.studies.common.arm_names import Name
from intrigue.studies.common.curves import Array, Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

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
PANEL = (3.3, 2.7)  # inches
POINTS = 200  # a panel is some 500 pixels wide


def draw_curves(results: Results, folder: Path, title: str) -> list[Path]:
    """The picture written into `folder` as curves.png and curves.svg.

    Where presets were run with changes (noise, say), each preset has a row of its own and only its changes are told
    apart in it; otherwise a panel holds all presets.
    """
    with drawing():
        changed = any(name.changes for name in results.scores)
        figure, handles = _by_preset(results) if changed else _by_game(results)
        figure.suptitle(f"{title}\nmean return of the last 100 training episodes", fontsize=12)
        legend_below(figure, handles, columns=len(handles), handlelength=2.8, fontsize=10)
        picture = finish(figure, "curves", title, "")
    for suffix, data in (("png", picture.png), ("svg", picture.svg)):
        write_file(folder / f"curves.{suffix}", data)
    return [folder / "curves.png", folder / "curves.svg"]


def _by_game(results: Results) -> tuple[Figure, list[Line2D]]:
    """One panel per game, all presets in it."""
    games = sorted({curve.game for curve in results.curves})
    names = sorted(results.scores)
    columns = {1: 1, 2: 2, 3: 3, 4: 2}.get(len(games), 3 if len(games) <= 9 else 5)
    rows = math.ceil(len(games) / columns)
    # A single narrow panel would cut the title and the legend.
    figure = new_figure(max(6.6, PANEL[0] * columns), PANEL[1] * rows + 1.4)
    panels = figure.subplots(rows, columns, squeeze=False)
    for place, axes in enumerate(panels.flat):
        if place < len(games):
            _plot(axes, [curve for curve in results.curves if curve.game == games[place]], names)
            _frame(axes, games[place])
            axes.set_xlabel("agent steps" if place + columns >= len(games) else "")
            axes.set_ylabel("raw return" if place % columns == 0 else "")
        else:
            axes.set_visible(False)
    return figure, [_handle(style_of(names, name), str(name)) for name in names]


def _by_preset(results: Results) -> tuple[Figure, list[Line2D]]:
    """A row of panels per preset, a column per game; what was changed in the preset has a dash of its own."""
    games = sorted({curve.game for curve in results.curves})
    names = sorted(results.scores)
    presets = sorted({name.preset for name in names})
    size = (max(6.6, PANEL[0] * len(games)), PANEL[1] * len(presets) + 1.4)
    figure = new_figure(*size)
    panels = figure.subplots(len(presets), len(games), squeeze=False, sharey="col", sharex="col")
    for row, preset in enumerate(presets):
        for column, game in enumerate(games):
            axes = panels[row, column]
            mine = [curve for curve in results.curves if (curve.game, curve.name.preset) == (game, preset)]
            _plot(axes, mine, names)
            axes.set_xlabel("agent steps" if row == len(presets) - 1 else "")
            axes.set_ylabel(f"{preset}\nraw return" if column == 0 else "")
    for place, axes in enumerate(panels.flat):
        _frame(axes, games[place % len(games)])
    changes = sorted({name.changes for name in names} | {""})
    dashes = {each: DASHES[place % len(DASHES)] for place, each in enumerate(changes)}
    return figure, [_handle(("#333333", dashes[each]), each or "as the preset") for each in changes]


def style_of(names: Sequence[Name], name: Name) -> tuple[str, Any]:
    """Colour by preset, dash by what was changed in it."""
    base = name.preset.removesuffix("-int-ext")
    others = sorted({each.preset for each in names if each.preset.removesuffix("-int-ext") not in FIXED})
    color = FIXED[base] if base in FIXED else SPARE[others.index(name.preset) % len(SPARE)]
    changed = sorted({each.changes for each in names} | {""})
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


def _plot(axes: Axes, curves: Sequence[Curve], names: Sequence[Name]) -> None:
    axes.margins(x=0.02, y=0.08)
    for name in names:
        mine = [curve for curve in curves if curve.name == name]
        if not mine:
            continue
        color, dash = style_of(names, name)
        for curve in mine if len(mine) > 1 else ():
            axes.plot(*_measured(curve), color=color, linewidth=0.7, alpha=0.35)
        steps, values = mean_curve(mine)
        axes.plot(steps, values, color=color, linestyle=dash, linewidth=2.0, marker="o" if len(steps) == 1 else "")


def _frame(axes: Axes, game: str) -> None:
    """Titles, ticks and reference lines, once everything is drawn: panels may share their limits."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    scale = ATARI_57[game]
    axes.set_title(game, fontsize=11, pad=17)
    scales = f"random {scale.random:g}, human {scale.human:g}"
    axes.text(0, 1.03, scales, transform=axes.transAxes, fontsize=8, color="#555555")
    axes.set_xlim(left=0)
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


def _handle(style: tuple[str, Any], label: str) -> Line2D:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=style[0], linestyle=style[1], linewidth=2.0, label=label.replace("curiosity.", ""))
