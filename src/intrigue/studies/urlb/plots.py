"""Pictures of URLB: means by method, ours and the published ones; and the learning curves of fine-tuning.

A method has the same colour in both. Ours is a dot with its interval over seeds, the paper a hollow diamond, the
independent rerun a hollow square.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intrigue.report.charts import COLORS, add_legend_below, format_short_count, make_figure, use_style
from intrigue.scores import AGGREGATES, bootstrap_interval
from intrigue.scores.normalized import EXPERTS
from intrigue.scores.urlb_published import DOMAINS, Column, domain_of, shares, tasks_of
from intrigue.studies.common import plots
from intrigue.studies.common.arm_names import ArmName
from intrigue.studies.common.plots import REFERENCE_DASH, format_counts, line_handle, make_panels, plot_runs
from intrigue.studies.common.results import Results
from intrigue.studies.urlb.methods import Method, method_of, multi_env_variants, single_env_variant
from intrigue.studies.urlb.table import FinetuningTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

FIXED = {
    "NNM": COLORS[0],
    "Disagreement": COLORS[1],
    "APT": COLORS[2],
    "NNM ensemble": COLORS[3],
    "NNM centered": COLORS[5],
    "NNM states": COLORS[4],
    "scratch": "#333333",
}
SPARE = (*plots.SPARE, "#7F7F7F", "#AEC7E8", "#B5651D")
NEAR_THE_END = 50_000  # frames: before it, the paper's score at 100k would squeeze the curves
LABEL = 30  # characters in a line: names of runs with changed settings are long
MARKS = {"paper": "D", "rerun": "s"}


def color_of(label: str, labels: Sequence[str]) -> str:
    """A method's own colour, or the next spare one."""
    others = [each for each in labels if each not in FIXED]
    return FIXED[label] if label in FIXED else SPARE[others.index(label) % len(SPARE)]


def draw_scores(results: Results, folder: Path, title: str) -> list[Path]:
    """Means as shares of the experts' scores, a panel per domain and one for all, as scores.png and scores.svg."""
    table = FinetuningTable(results)
    labels = list(table.held)
    shared = [(domain, [task for task in table.tasks if domain_of(task) == domain]) for domain in DOMAINS]
    panels = [(domain, tasks) for domain, tasks in shared if tasks]
    if len(panels) > 1:
        panels.insert(0, ("all", list(table.tasks)))
    panels += [(domain, tasks_of(domain)) for domain in table.apart]
    written = [textwrap.fill(label, LABEL, break_long_words=False) for label in labels]
    lines = max(text.count("\n") + 1 for text in written)
    with use_style():
        height = 2.1 + (0.34 + 0.13 * (lines - 1)) * max(3, len(labels))
        figure = make_figure(max(7.2, 3.0 + 2.6 * len(panels)), height)
        axes = figure.subplots(1, max(1, len(panels)), squeeze=False, sharey=True, sharex=True)[0]
        sources: set[str] = set()
        for place, (name, tasks) in zip(axes, panels, strict=False):
            sources |= _means(place, results, table, tasks)
            fewer = "1 task" if len(tasks) == 1 else f"{len(tasks)} tasks"
            place.set_title(f"{name}, {fewer}", fontsize=11)
            place.set_xlabel("mean score / expert")
        axes[0].set_xlim(0, 1.03 * axes[0].get_xlim()[1])  # once all is drawn: the panels share their limits
        axes[0].set_yticks(range(len(labels)), written, fontsize=11 if lines == 1 else 8)
        axes[0].set_ylim(len(labels) - 0.5, -0.5)
        figure.suptitle(f"{title}\n{_budget(results)}", fontsize=12)
        add_legend_below(figure, _legend(sources), columns=3, fontsize=10)
        return plots.write_picture(figure, folder, "scores", title)


def draw_finetunings(
    results: Results, tasks: Sequence[str], labels: Sequence[str], folder: Path, title: str
) -> list[Path]:
    """Learning curves of fine-tuning, a panel per task, as curves.png and curves.svg."""
    every = multi_env_variants(labels, results.scores)
    names = {label: name for label, name in every.items() if name in results.scores}
    shown = [task for task in tasks if any(results.raw(name, task) for name in names.values())]
    if not shown:
        return []
    columns = {1: 1, 2: 2, 3: 3, 4: 2}.get(len(shown), 3)
    with use_style():
        figure, panels = make_panels(shown, columns, 7.2, 1.5, ("frames of the task", "return"))
        for axes, task in panels:
            _curves(axes, results, task, names)
        figure.suptitle(f"{title}\n{_budget(results)}", fontsize=12)
        handles = [line_handle(color_of(label, list(names)), label) for label in names]
        if results.step >= NEAR_THE_END:
            handles += [
                _mark("paper", "#555555", "paper, after 100k"),
                line_handle("#9A9A9A", "expert", REFERENCE_DASH),
            ]
        add_legend_below(figure, handles, columns=6, handlelength=2.8, fontsize=10)
        return plots.write_picture(figure, folder, "curves", title)


def _means(axes: Axes, results: Results, table: FinetuningTable, tasks: Sequence[str]) -> set[str]:
    """The published sources that have a mark here."""
    labels, sources = list(table.held), set()
    for row, label in enumerate(labels):
        color, method = color_of(label, labels), _printed(table.held[label], table.held.values())
        columns: dict[str, Column] = (
            {"paper": method.paper_column, "rerun": method.rerun_column} if method is not None else {}
        )
        for source, column in columns.items():
            if all(task in column for task in tasks):
                sources.add(source)
                value = shares(column, tasks).mean()
                axes.plot([value], [row], marker=MARKS[source], color=color, markerfacecolor="none", markersize=8)
        mine = [task for task in tasks if results.raw(table.held[label], task)]
        if mine != list(tasks):
            continue  # a mean over other tasks would be compared with the wrong ones
        scores = results.normalised(table.held[label], tasks)
        interval = bootstrap_interval(scores)
        if interval is not None:
            axes.plot(interval, [row, row], color=color, linewidth=2.4, solid_capstyle="butt")
        axes.plot([AGGREGATES["mean"](scores)], [row], marker="o", color=color, markersize=7)
    axes.tick_params(axis="y", length=0)
    return sources


def _printed(name: ArmName, shown: Collection[ArmName]) -> Method | None:
    """The method whose published scores belong to this name; they are one environment's, if that is shown too."""
    return None if single_env_variant(name) != name and single_env_variant(name) in shown else method_of(name)


def _curves(axes: Axes, results: Results, task: str, names: dict[str, ArmName]) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.margins(x=0.04, y=0.08)
    for label, name in names.items():
        color = color_of(label, list(names))
        plot_runs(axes, results.runs_of(name, task), color)
        method = _printed(name, names.values())
        printed = None if method is None else method.paper_column.get(task)
        if printed is not None and results.step >= NEAR_THE_END:
            axes.plot([100_000], [printed.score], marker="D", color=color, markerfacecolor="none", markersize=7)
    axes.set_title(task, fontsize=11, pad=17)
    axes.text(0, 1.03, f"expert {EXPERTS[task]:g}", transform=axes.transAxes, fontsize=8, color="#555555")
    axes.set_xlim(0, 1.03 * axes.get_xlim()[1])  # room for half a mark at the last frame
    axes.set_ylim(0, 1.06 * axes.get_ylim()[1])
    if EXPERTS[task] <= axes.get_ylim()[1]:
        axes.axhline(EXPERTS[task], color="#9A9A9A", linewidth=1.0, linestyle=REFERENCE_DASH, zorder=0)
    format_counts(axes.xaxis)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))


def _budget(results: Results) -> str:
    """What was trained, in a line under the title."""
    lengths = {domain: format_short_count(frames) for domain, frames in results.snapshots.items()} or {"": "0"}
    lengths_text = ", ".join(f"{domain} {frames}" for domain, frames in sorted(lengths.items()))
    if len(set(lengths.values())) == 1:
        [lengths_text] = set(lengths.values())
    return f"{lengths_text} frames without a reward, {format_short_count(results.step)} with one"


def _legend(sources: Collection[str]) -> list[Line2D]:
    from matplotlib.lines import Line2D

    ours: dict[str, Any] = {"color": "#555555", "marker": "o", "linewidth": 2.4}
    published = {"paper": "paper", "rerun": "rerun by others"}
    return [
        Line2D([], [], label="ours, 95 % over seeds", **ours),
        *(_mark(source, "#555555", label) for source, label in published.items() if source in sources),
    ]


def _mark(source: str, color: str, label: str) -> Line2D:
    from matplotlib.lines import Line2D

    return Line2D(
        [], [], marker=MARKS[source], color=color, markerfacecolor="none", markersize=8, linestyle="", label=label
    )
