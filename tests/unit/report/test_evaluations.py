"""Evaluations on a report's page: a fine-tuning's score in its table, beside the expert's, and its curve."""

from __future__ import annotations

import pytest

from intrigue.report.arms import sort_tasks
from intrigue.report.charts import make_curve
from intrigue.report.record import read_record
from intrigue.report.sections import _charts
from intrigue.report.tables import number_table
from intrigue.run.folder import RunFolder
from report_folders import config_of, write_pretraining, write_run, write_tuning

HEADER = "step,frame,wall_seconds,eval/return_mean,eval/return_std,eval/length_mean,eval/episodes,eval/normalized"
EXPERT = "of the expert's 796"


def evaluated(path, *returns):
    """The run with these evaluations, one every 200 steps."""
    rows = [f"{200 * n},{200 * n},{n}.5,{value},1.0,1000,10,{value / 796}" for n, value in enumerate(returns, start=1)]
    RunFolder(path).evaluations.write_text("\n".join([HEADER, *rows, ""]))
    return path


def tuned(tmp_path, *returns, seed=0):
    pre = write_pretraining(tmp_path / f"pre-{seed}", seed=seed)
    return evaluated(write_tuning(tmp_path / f"tuned-{seed}", pre, seed=seed), *returns)


def task_of(*paths):
    (task,) = sort_tasks([read_record(path) for path in paths])
    return task


def cells_of(task):
    grid = number_table(task)
    (row,) = grid.rows
    return {heading: (cell.text, cell.note) for heading, cell in zip(grid.headings, row, strict=True)}


def test_the_last_evaluation_is_the_score_and_has_its_share_of_the_experts(tmp_path):
    cells = cells_of(task_of(tuned(tmp_path, 100.0, 398.0)))
    assert cells["last evaluation"] == ("398", "")
    assert cells[EXPERT] == ("50.0 %", "")  # 398 of 796


def test_scores_of_seeds_have_a_mean_and_an_interval(tmp_path):
    pre = write_pretraining(tmp_path / "pre")
    runs = [
        evaluated(write_tuning(tmp_path / f"tuned-{seed}", pre, seed=seed), 10.0, 398.0 + 2 * seed) for seed in (0, 1)
    ]
    assert cells_of(task_of(*runs))["last evaluation"] == ("399", "[398, 400]")


def test_without_evaluations_there_are_no_columns_for_them(tmp_path):
    headings = cells_of(task_of(write_run(tmp_path / "a", config_of())))
    assert not {"last evaluation", EXPERT} & set(headings)


def test_one_run_without_an_evaluation_forbids_the_mean(tmp_path):
    pre = write_pretraining(tmp_path / "pre")
    runs = [write_tuning(tmp_path / f"tuned-{seed}", pre, seed=seed) for seed in (0, 1)]
    evaluated(runs[0], 398.0)
    assert cells_of(task_of(*runs))["last evaluation"] == ("not measured", "in 1 of 2")


def test_the_curve_is_that_of_the_evaluations(tmp_path):
    curve = make_curve([read_record(tuned(tmp_path, 100.0, 398.0))], "eval/return_mean")
    assert curve is not None
    assert [list(each) for each in curve.mean] == [[200.0, 400.0], [100.0, 398.0]]


def test_an_idle_bonus_has_no_chart(tmp_path):
    """Of a fine-tuning it is a line at zero."""
    names = [picture.name for picture in _charts(task_of(tuned(tmp_path, 100.0, 398.0)), "")]
    assert "evaluation" in names and "bonus" not in names
    plain = [picture.name for picture in _charts(task_of(write_run(tmp_path / "a", config_of())), "")]
    assert "bonus" in plain and "evaluation" not in plain


@pytest.mark.parametrize(("torn", "state"), [("600,600,3.5,4", "finished"), ("600,what\n", "damaged")])
def test_a_torn_line_is_noted_and_a_garbled_one_refused(tmp_path, torn, state):
    path = tuned(tmp_path, 100.0, 398.0)
    with RunFolder(path).evaluations.open("a") as file:
        file.write(torn)
    record = read_record(path)
    assert record.state == state
    assert "eval.csv" in (record.reason if state == "damaged" else " ".join(record.notes))
