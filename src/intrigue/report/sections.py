"""The parts of a page for one task: warnings, figures with captions, the numbers, what is missing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from intrigue.report.arms import ArmRuns, Task
from intrigue.report.charts import Picture, draw_line_chart, render_picture
from intrigue.report.commands import plain_commands
from intrigue.report.headline import write_headline
from intrigue.report.heatmap import collect_visit_grids, draw_maze, shared_scale
from intrigue.report.numbers import frames_per_step
from intrigue.report.random_baseline import describe_cap
from intrigue.report.tables import Grid, describe_states, difference_table, number_table
from intrigue.report.text import escape_unprintable, plural

COMBINED_PANELS = 4  # arms in the one picture that shows several; ours: more would be too small to see

CHARTS = (
    ("coverage", "charts/coverage", "Coverage over time", "places visited", "Share of all places entered so far."),
    (
        "return",
        "charts/episodic_return",
        "Return over time",
        "episodic return",
        "Raw return of the environment, mean of the last 100 finished episodes.",
    ),
    (
        "evaluation",
        "eval/return_mean",
        "Evaluations over time",
        "return",
        "Mean return of greedy episodes, played beside training; the last is a fine-tuning's score.",
    ),
    (
        "bonus",
        "intrinsic/raw_mean",
        "Bonus over time",
        "raw bonus, mean of an update",
        "Each bonus has its own unit: compare the shape of its curve, not its height, between arms.",
    ),
)


@dataclass(frozen=True)
class Section:
    """One task as the template shows it; `extra` pictures are written to disk but not shown."""

    env_id: str
    headline: str
    warnings: list[str]
    numbers: Grid
    differences: Grid | None
    maps: list[Picture]
    charts: list[Picture]
    extra: list[Picture]
    missing_plain: list[str]

    @property
    def pictures(self) -> list[Picture]:
        """Everything to write."""
        return [*self.maps, *self.charts, *self.extra]


def make_section(task: Task, given: Sequence[Path], prefix: str) -> Section:
    """The section of one task; drawing needs `charts.use_style()` around it."""
    maps, extra = _maps(task, prefix)
    return Section(
        env_id=escape_unprintable(task.env_id),
        headline=escape_unprintable(write_headline(task.arms)),
        warnings=[escape_unprintable(text) for text in collect_warnings(task)],
        numbers=number_table(task),
        differences=difference_table(task),
        maps=maps,
        charts=_charts(task, prefix),
        extra=extra,
        missing_plain=[escape_unprintable(command) for command in plain_commands(task, given)],
    )


def collect_warnings(task: Task) -> list[str]:
    """What a reader must know before believing the numbers."""
    found = []
    for arm in task.arms:
        states = describe_states(arm)
        if states and arm.so_far:
            basis = (
                "the numbers are those so far" if arm.counted else "they stand at different steps and are not averaged"
            )
            found.append(f"{arm.label}: no run is finished ({states}); {basis}.")
        elif states:
            shown = plural(len(arm.counted), "finished run")
            found.append(f"{arm.label}: the numbers are of {shown} out of {len(arm.runs)} ({states}).")
    lengths = {arm.label: sorted({run.step for run in arm.counted}) for arm in task.arms if arm.counted}
    lengths = {label: steps for label, steps in lengths.items() if steps}
    if len({tuple(steps) for steps in lengths.values()}) > 1:
        each = "; ".join(f"{label} {' and '.join(f'{step:,}' for step in steps)}" for label, steps in lengths.items())
        found.append(f"The arms have different numbers of steps, so compare the curves, not the final numbers: {each}.")
    versions = sorted({run.version for arm in task.arms for run in arm.runs if run.path is not None})
    if len(versions) > 1:
        found.append(f"The runs were made by different versions of intrigue and are kept apart: {', '.join(versions)}.")
    capped = describe_cap(task.arms)
    return [*found, *([capped] if capped else [])]


def _has_bonus(arm: ArmRuns) -> bool:
    return arm.config.reward_name != "none" and not arm.config.curiosity.idle


def _charts(task: Task, prefix: str) -> list[Picture]:
    ratios = [frames_per_step(run) for arm in task.arms for run in arm.counted]
    frames = ratios[0] if len(set(ratios)) == 1 else 1.0
    pictures = []
    for name, column, title, y_label, caption in CHARTS:
        # Without a bonus the curve is a line at zero, which says nothing and hides the others.
        arms = [arm for arm in task.arms if name != "bonus" or _has_bonus(arm)]
        chart = draw_line_chart(arms, column, y_label, frames, as_share=name == "coverage")
        if chart is not None:
            pictures.append(render_picture(chart, f"{prefix}{name}", title, caption))
    return pictures


def _maps(task: Task, prefix: str) -> tuple[list[Picture], list[Picture]]:
    """One picture per arm, and one of several arms side by side."""
    maze = task.maze
    panels = collect_visit_grids(task.arms, maze) if maze is not None else []
    if maze is None or not panels:
        return [], []
    scale = shared_scale([grid for _, grid in panels])
    pictures = []
    for index, (arm, grid) in enumerate(panels, start=1):
        title = f"Visits of {escape_unprintable(arm.label)}"
        basis = f"Mean over {len(arm.counted)} runs" if len(arm.counted) > 1 else "One run"
        lag = "" if not arm.so_far else f", up to step {min(run.visits_step for run in arm.counted):,}"
        name = f"{prefix}visits-{index}-{slug(arm.label)}"
        pictures.append(render_picture(draw_maze([(arm, grid)], maze, scale), name, title, f"{basis}{lag}."))
    shown = panels if len(panels) <= COMBINED_PANELS else [*panels[: COMBINED_PANELS - 1], panels[-1]]
    together = draw_maze(shown, maze, scale)
    return pictures, [render_picture(together, f"{prefix}visits", "Visits side by side", "")]


def slug(text: str) -> str:
    """The text as part of a file name: letters, digits and single hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40] or "arm"
