"""The tables of the page as plain values: final numbers per arm, the state of each run, what the arms differ in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from intrigue.envs.registry import split_id
from intrigue.report.arms import MAZE_FAMILIES, ArmRuns, Task
from intrigue.report.charts import choose_line_style
from intrigue.report.labels import differing_settings, flat_settings
from intrigue.report.numbers import (
    coverage,
    describe_success,
    estimate_arm,
    first_success,
    frames_per_step,
    last_evaluation,
    last_return,
    last_share,
    mean_bonus,
    speed,
)
from intrigue.report.record import RunRecord
from intrigue.report.text import ABSENT, count, escape_unprintable, number, percent
from intrigue.scores.normalized import expert_of

SECTIONS_SHOWN_WHOLE = 40  # characters of a setting's value in a table; the full settings stand below it


@dataclass(frozen=True)
class Cell:
    """What stands in a cell, and the smaller line under it."""

    text: str
    note: str = ""
    color: str = ""


@dataclass(frozen=True)
class Grid:
    """A table: headings and rows of equal length."""

    headings: list[str]
    rows: list[list[Cell]]


def knows_coverage(task: Task) -> bool:
    """Whether any run of the task counted places."""
    return any(coverage(run) is not None for arm in task.arms for run in arm.runs)


def shows_success(task: Task) -> bool:
    """Whether the first positive return says anything: not where every run's very first episode has one."""
    if split_id(task.env_id)[0] in MAZE_FAMILIES:
        return True
    known = [run.episodes["episodic_return"] for arm in task.arms for run in arm.counted if run.episodes.get("step")]
    return any(returns[0] <= 0 for returns in known)


def success_heading(task: Task) -> str:
    """What the first positive return is called in this environment."""
    return "goal found at step" if split_id(task.env_id)[0] in MAZE_FAMILIES else "first return above 0 at step"


def evaluation_columns(task: Task) -> dict[str, tuple[Callable[[RunRecord], float | None], Callable[[float], str]]]:
    """By heading what evaluations found, and its form: the last, and its share of an expert's; none where none were."""
    if all(last_evaluation(run) is None for arm in task.arms for run in arm.counted):
        return {}
    expert = expert_of(task.env_id)
    shares = {} if expert is None else {f"of the expert's {expert:g}": (last_share, percent)}
    return {"last evaluation": (last_evaluation, number), **shares}


def number_table(task: Task) -> Grid:
    """The final numbers, one row per arm."""
    places, success, evaluated = knows_coverage(task), shows_success(task), evaluation_columns(task)
    headings = ["arm", "runs", *(["coverage"] if places else []), *([success_heading(task)] if success else [])]
    headings += [*evaluated, "return, last 100 episodes", "mean raw bonus", "steps", "frames", "steps/s"]
    rows = []
    for arm in task.arms:
        steps = sorted({run.step for run in arm.counted})
        frames = sorted({round(run.step * frames_per_step(run)) for run in arm.counted})
        row = [_arm_cell(task.arms, arm), _runs_cell(arm)]
        row += [_estimate_cell(arm, coverage, percent)] if places else []
        row += [_split_cell(describe_success(arm, count))] if success else []
        row += [_estimate_cell(arm, *value_and_form) for value_and_form in evaluated.values()]
        row += [_estimate_cell(arm, last_return, number), _estimate_cell(arm, mean_bonus, number)]
        rows.append([*row, _span(steps), _span(frames), _estimate_cell(arm, speed, count)])
    return Grid(headings, rows)


def run_table(tasks: Sequence[Task], unreadable: Sequence[RunRecord]) -> Grid:
    """Every run that was given, one row each, with its state."""
    headings = ["run", "arm", "seed", "state", "step", "coverage", "return, last 100 episodes", "first return > 0"]
    rows = []
    for task in tasks:
        for arm in task.arms:
            label = f"{task.env_id}: {arm.label}" if len(tasks) > 1 else arm.label
            rows += [_run_row(run, label) for run in arm.runs if run.path is not None]
    rows += [_run_row(run, ABSENT) for run in unreadable]
    return Grid(headings, rows)


def difference_table(task: Task) -> Grid | None:
    """The settings in which arms on disk differ, one row per setting; None for a single arm."""
    arms = [arm for arm in task.arms if not arm.is_simulated]
    if len(arms) < 2:
        return None
    flat = [flat_settings(arm.config) for arm in arms]
    rows = []
    for name in differing_settings([arm.config for arm in arms]):
        values = [str(each[name]) if name in each else ABSENT for each in flat]
        rows.append([Cell(name), *(Cell(escape_unprintable(value)[:SECTIONS_SHOWN_WHOLE]) for value in values)])
    begun = [arm.begun for arm in arms]
    if len(set(begun)) > 1:
        rows.append([Cell("begun"), *(Cell(escape_unprintable(words) or ABSENT) for words in begun)])
    versions = [arm.runs[0].version for arm in arms]
    if len(set(versions)) > 1:
        rows.append([Cell("version of intrigue"), *(Cell(escape_unprintable(version)) for version in versions)])
    return Grid(["setting", *(escape_unprintable(arm.label) for arm in arms)], rows)


def describe_states(arm: ArmRuns) -> str:
    """How many of the arm's runs are in which state, in words; empty when all are finished."""
    states = Counter(run.state for run in arm.runs)
    return ", ".join(f"{amount} {state}" for state, amount in sorted(states.items()) if state != "finished")


def _run_row(run: RunRecord, label: str) -> list[Cell]:
    share, recent, success = coverage(run), last_return(run), first_success(run)
    wanted = "" if run.config is None else f"of {run.config.run.steps:,}"
    usable = run.state != "damaged"
    return [
        Cell(
            escape_unprintable(str(run.path)),
            escape_unprintable("; ".join(each for each in (run.reason, *run.notes) if each)),
        ),
        Cell(escape_unprintable(label)),
        Cell(ABSENT if run.seed is None else str(run.seed)),
        Cell(run.state),
        Cell(count(run.step) if usable else ABSENT, wanted),
        Cell(ABSENT if share is None else percent(share)),
        Cell(ABSENT if recent is None else number(recent)),
        Cell(ABSENT if success is None else count(success)),
    ]


def _arm_cell(arms: Sequence[ArmRuns], arm: ArmRuns) -> Cell:
    note = "simulated for this page" if arm.is_simulated else "unfinished: numbers so far" if arm.so_far else ""
    return Cell(escape_unprintable(arm.label), note, choose_line_style(arms, arm)[0])


def _runs_cell(arm: ArmRuns) -> Cell:
    counted, given = len(arm.counted), len(arm.runs)
    return Cell(str(counted) if counted == given else f"{counted} of {given}", describe_states(arm))


def _estimate_cell(arm: ArmRuns, value: Callable[[RunRecord], float | None], form: Callable[[float], str]) -> Cell:
    return _split_cell(estimate_arm(arm, value).text(form)) if arm.counted else Cell(ABSENT)


def _split_cell(text: str) -> Cell:
    """What qualifies a number under it: the interval, or the count of runs without one."""
    for mark, kept in ((" [", "["), ("; ", ""), (" in ", "in ")):
        main, found, rest = text.partition(mark)
        if found:
            return Cell(main, kept + rest)
    return Cell(text)


def _span(values: Sequence[int]) -> Cell:
    if not values:
        return Cell(ABSENT)
    return Cell(count(values[0]) if len(values) == 1 else f"{count(values[0])} to {count(values[-1])}")
