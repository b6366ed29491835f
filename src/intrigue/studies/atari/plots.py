"""Learning curves of Atari: a panel per game, or per game and preset.

A method has the same colour in every panel of every study; what was changed in it (noise) changes the dash. Random play
and a person are dashed lines where they lie within the panel, and numbers above it always.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intrigue.report.charts import COLORS, add_legend_below, make_figure, use_style
from intrigue.scores import ATARI_57
from intrigue.studies.common.arm_names import ArmName
from intrigue.studies.common.plots import (
    PANEL,
    REFERENCE_DASH,
    SPARE,
    format_counts,
    line_handle,
    make_panels,
    plot_runs,
    write_picture,
)
from intrigue.studies.common.results import Results
from intrigue.studies.common.run_records import LearningCurve

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
DASHES = ("-", (0, (4, 1.6)), (0, (1.2, 1.2)), "-.")


def draw_curves(results: Results, folder: Path, title: str) -> list[Path]:
    """The picture written into `folder` as curves.png and curves.svg.

    Where presets were run with changes (noise, say), each preset has a row of panels that tells only its changes apart;
    otherwise a panel holds all presets.
    """
    with use_style():
        changed = any(name.changes for name in results.scores)
        figure, handles = _by_preset(results) if changed else _by_game(results)
        figure.suptitle(f"{title}\nmean return of the last 100 training episodes", fontsize=12)
        add_legend_below(figure, handles, columns=len(handles), handlelength=2.8, fontsize=10)
        return write_picture(figure, folder, "curves", title)


def _by_game(results: Results) -> tuple[Figure, list[Line2D]]:
    """One panel per game, all presets in it."""
    games = sorted({run.task for run in results.runs})
    names = sorted(results.scores)
    columns = {1: 1, 2: 2, 3: 3, 4: 2}.get(len(games), 3 if len(games) <= 9 else 5)
    figure, panels = make_panels(games, columns, 6.6, 1.4, ("agent steps", "raw return"))
    for axes, game in panels:
        _plot(axes, [run for run in results.runs if run.task == game], names)
        _frame(axes, game)
    return figure, [_handle(style_of(names, name), str(name)) for name in names]


def _by_preset(results: Results) -> tuple[Figure, list[Line2D]]:
    """A row of panels per preset, a column per game; what was changed in the preset has a dash of its own."""
    games = sorted({run.task for run in results.runs})
    names = sorted(results.scores)
    presets = sorted({name.preset for name in names})
    size = (max(6.6, PANEL[0] * len(games)), PANEL[1] * len(presets) + 1.4)
    figure = make_figure(*size)
    panels = figure.subplots(len(presets), len(games), squeeze=False, sharey="col", sharex="col")
    for row, preset in enumerate(presets):
        for column, game in enumerate(games):
            axes = panels[row, column]
            mine = [run for run in results.runs if (run.task, run.name.preset) == (game, preset)]
            _plot(axes, mine, names)
            axes.set_xlabel("agent steps" if row == len(presets) - 1 else "")
            axes.set_ylabel(f"{preset}\nraw return" if column == 0 else "")
    for place, axes in enumerate(panels.flat):
        _frame(axes, games[place % len(games)])
    changes = sorted({name.changes for name in names} | {""})
    dashes = {each: DASHES[place % len(DASHES)] for place, each in enumerate(changes)}
    return figure, [_handle(("#333333", dashes[each]), each or "as the preset") for each in changes]


def style_of(names: Sequence[ArmName], name: ArmName) -> tuple[str, Any]:
    """Colour by preset, dash by what was changed in it."""
    base = name.preset.removesuffix("-int-ext")
    others = sorted({each.preset for each in names if each.preset.removesuffix("-int-ext") not in FIXED})
    color = FIXED[base] if base in FIXED else SPARE[others.index(name.preset) % len(SPARE)]
    changed = sorted({each.changes for each in names} | {""})
    return color, DASHES[changed.index(name.changes) % len(DASHES)]


def _plot(axes: Axes, runs: Sequence[LearningCurve], names: Sequence[ArmName]) -> None:
    axes.margins(x=0.02, y=0.08)
    for name in names:
        plot_runs(axes, [run for run in runs if run.name == name], *style_of(names, name))


def _frame(axes: Axes, game: str) -> None:
    """Titles, ticks and reference lines, once everything is drawn: panels may share their limits."""
    from matplotlib.ticker import MaxNLocator

    scale = ATARI_57[game]
    axes.set_title(game, fontsize=11, pad=17)
    scales = f"random {scale.random:g}, human {scale.human:g}"
    axes.text(0, 1.03, scales, transform=axes.transAxes, fontsize=8, color="#555555")
    axes.set_xlim(left=0)
    low, high = axes.get_ylim()
    for value, word in ((scale.random, "random"), (scale.human, "human")):
        if low <= value <= high:
            axes.axhline(value, color="#9A9A9A", linewidth=1.0, linestyle=REFERENCE_DASH, zorder=0)
            text: dict[str, Any] = {"fontsize": 8, "color": "#777777", "ha": "right", "va": "bottom"}
            axes.annotate(word, (0.99, value), xycoords=("axes fraction", "data"), **text)
    axes.set_ylim(low, high)
    format_counts(axes.xaxis, axes.yaxis)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_locator(MaxNLocator(5))


def _handle(style: tuple[str, Any], label: str) -> Line2D:
    return line_handle(style[0], label.replace("curiosity.", ""), style[1])
