"""The numbers of a report against values computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intrigue.report.arms import sort_tasks
from intrigue.report.charts import POINTS, average_lines, make_curve, thin_line
from intrigue.report.headline import write_headline
from intrigue.report.numbers import describe_success, estimate, frames_per_step
from intrigue.report.random_baseline import describe_cap, simulate, with_random_policy
from intrigue.report.record import RunRecord, read_record
from intrigue.report.tables import number_table
from intrigue.report.text import count, escape_unprintable, figure_text, number, percent
from report_folders import config_of, visits_of, write_run


def task_of(*paths):
    """The one task of these runs."""
    (task,) = sort_tasks([read_record(path) for path in paths])
    return task


def cells_of(task, label: str) -> dict[str, tuple[str, str]]:
    """Text and note of every cell in an arm's row."""
    grid = number_table(task)
    (row,) = [row for row in grid.rows if row[0].text == label]
    return {heading: (cell.text, cell.note) for heading, cell in zip(grid.headings, row, strict=True)}


def test_a_single_run_has_hand_computed_numbers_and_no_interval(tmp_path):
    # 101 episodes: the first, with return 7, falls out of the window of 100; the others sum to 50.
    episodes = [(2, 7.0), *((4 + index, 0.5) for index in range(100))]
    run = write_run(
        tmp_path / "a", config_of(), visits=visits_of(10), episodes=episodes, bonus=(0.5, 0.25), frames=4, seconds=2.0
    )
    cells = cells_of(task_of(run), "nnmc (knn)")
    assert cells == {
        "arm": ("nnmc (knn)", ""),
        "runs": ("1", ""),
        "coverage": ("52.6 %", ""),  # 10 / 19
        "goal found at step": ("2", ""),
        "return, last 100 episodes": ("0.5", ""),
        "mean raw bonus": ("0.375", ""),
        "steps": ("400", ""),
        "frames": ("1,600", ""),
        "steps/s": ("200", ""),
    }


def test_several_seeds_have_a_mean_and_an_interval_within_their_range(tmp_path):
    runs = [
        write_run(tmp_path / str(seed), config_of(seed), visits=visits_of(seen), episodes=[(at, 1.0)])
        for seed, seen, at in ((0, 19, 100), (1, 0, 200), (2, 19, 300))
    ]
    cells = cells_of(task_of(*runs), "nnmc (knn)")
    assert cells["runs"] == ("3", "")
    assert cells["coverage"] == ("66.7 %", "[0.0, 100.0]")
    assert cells["goal found at step"] == ("200", "[100, 300]")
    assert cells["mean raw bonus"] == ("0.375", "[0.375, 0.375]")


def test_runs_that_never_reach_the_goal_are_counted_and_not_left_out(tmp_path):
    runs = [
        write_run(tmp_path / str(seed), config_of(seed), visits=visits_of(3), episodes=[(at, value)])
        for seed, at, value in ((0, 120, 1.0), (1, 80, 0.0), (2, 160, 1.0))
    ]
    assert describe_success(task_of(*runs).arms[0], count) == "120 to 160; not found in 1 of 3"
    assert describe_success(task_of(runs[1]).arms[0], count) == "not found"
    assert describe_success(task_of(runs[0], runs[1]).arms[0], count) == "120; not found in 1 of 2"


def test_a_missing_value_forbids_the_mean_instead_of_shrinking_it(tmp_path):
    runs = [
        write_run(tmp_path / "0", config_of(0), visits=visits_of(3), episodes=[(8, 1.0)]),
        write_run(tmp_path / "1", config_of(1), visits=visits_of(3)),
    ]
    assert cells_of(task_of(*runs), "nnmc (knn)")["return, last 100 episodes"] == ("not measured", "in 1 of 2")


def test_the_headline_names_all_three_figures(tmp_path):
    runs = [
        write_run(tmp_path / "n", config_of(), visits=visits_of(19), episodes=[(12, 0.0), (360, 1.0)]),
        write_run(tmp_path / "p", config_of(reward="none"), visits=visits_of(8)),
        write_run(tmp_path / "r", config_of(reward="none", agent="random"), visits=visits_of(4)),
    ]
    assert write_headline(task_of(*runs).arms) == (
        "NNM (nnmc, knn) visited 100.0 % of the maze, reward none 42.1 %, random 21.1 %, goal found at step 360 "
        "(1 seed, so no intervals)"
    )


def test_the_headline_has_intervals_when_there_are_seeds(tmp_path):
    runs = [write_run(tmp_path / str(seed), config_of(seed), visits=visits_of(19)) for seed in range(2)]
    assert write_headline(task_of(*runs).arms) == (
        "NNM (nnmc, knn) visited 100.0 % [100.0, 100.0] of the maze, goal not found in 2 of 2 runs "
        "(mean over 2 seeds, 95 % intervals)"
    )


def test_the_headline_says_when_lengths_differ_or_runs_are_under_way(tmp_path):
    runs = [
        write_run(tmp_path / "n", config_of(), visits=visits_of(19), step=200, finished=False),
        write_run(tmp_path / "p", config_of(reward="none"), visits=visits_of(8)),
    ]
    assert write_headline(task_of(*runs).arms).endswith("; lengths from 200 to 400 steps; runs unfinished")


def test_a_task_without_a_maze_is_summed_up_by_its_return(tmp_path):
    config = config_of(env="gym/CartPole-v1", reward="rnd")
    task = task_of(write_run(tmp_path / "c", config, episodes=[(10, 12.0), (20, 13.0)]))
    assert write_headline(task.arms) == "Return over the last episodes: rnd 12.5 (1 seed, so no intervals)"
    headings = number_table(task).headings
    assert "coverage" not in headings
    assert not any("at step" in heading for heading in headings), "every first episode is positive: nothing to say"


def test_frames_come_from_the_tables():
    assert frames_per_step(RunRecord(None, "finished", metrics={"step": [10.0], "frame": [40.0]})) == 4.0
    assert frames_per_step(RunRecord(None, "finished")) == 1.0


def test_the_random_policy_is_the_one_a_run_would_be(tmp_path):
    from intrigue.run.driver import start

    config = config_of(seed=3, steps=1200, reward="none", agent="random", threads=1, device="cpu")
    run = read_record(start(config, out=tmp_path / "r", quiet=True).path)
    simulated = simulate(config_of(), 1200, 3)
    np.testing.assert_array_equal(simulated.visits, run.visits)
    assert simulated.episodes == run.episodes
    assert simulated.metrics["charts/coverage"] == run.metrics["charts/coverage"]


def test_a_random_policy_is_added_only_where_none_is_given(tmp_path):
    curious = write_run(tmp_path / "n", config_of(7), visits=visits_of(19))
    added = with_random_policy(task_of(curious))
    assert [arm.label for arm in added.arms] == ["nnmc (knn)", "random policy"]
    assert [(run.seed, run.step) for run in added.arms[1].runs] == [(7, 400)]
    given = write_run(tmp_path / "r", config_of(7, reward="none", agent="random"), visits=visits_of(2))
    assert not any(arm.is_simulated for arm in with_random_policy(task_of(curious, given)).arms)


def test_a_capped_simulation_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("intrigue.report.random_baseline.STEP_CAP", 100)
    task = with_random_policy(task_of(write_run(tmp_path / "n", config_of(), visits=visits_of(19))))
    assert "simulated for 100 steps, while the longest run here has 400" in (describe_cap(task.arms) or "")


@settings(max_examples=15, deadline=None)  # each example redraws its values 2,000 times
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6))
def test_an_estimate_lies_in_its_interval_and_has_one_only_for_several_runs(values):
    found = estimate(values)
    assert found.mean == pytest.approx(sum(values) / len(values), abs=1e-6)
    assert (found.low is None) == (found.high is None) == (len(values) == 1)
    if found.low is not None and found.high is not None:
        slack = 1e-9 * max(map(abs, values), default=0)
        assert min(values) - slack <= found.low <= found.high <= max(values) + slack


def record_with(steps: list[float], values: list[float]) -> RunRecord:
    return RunRecord(None, "finished", metrics={"step": steps, "m": values})


def test_the_mean_curve_exists_only_where_every_run_has_values():
    # Second run: measured from 20 to 40, not a number at 10; at 30 the first has 3, the second halfway 5 to 7 = 6.
    runs = [record_with([10, 20, 30, 40, 50], [1, 2, 3, 4, 5]), record_with([10, 20, 40], [math.nan, 5, 7])]
    curve = make_curve(runs, "m")
    assert curve is not None
    np.testing.assert_array_equal(curve.mean[0], [20, 30, 40])
    np.testing.assert_array_equal(curve.mean[1], [3.5, 4.5, 5.5])
    assert make_curve([*runs, RunRecord(None, "finished")], "m") is None


def test_lines_that_share_no_step_have_an_empty_mean():
    early, late = (np.array([1.0, 2.0]), np.ones(2)), (np.array([3.0, 4.0]), np.ones(2))
    assert average_lines([early, late])[0].size == 0


def test_long_lines_are_thinned_and_keep_their_ends():
    steps = np.arange(10_001, dtype=float)
    kept, values = thin_line((steps, steps * 2))
    assert len(kept) == POINTS
    assert (kept[0], kept[-1], values[-1]) == (0, 10_000, 20_000)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.12345, "0.1235"), (12.5, "12.5"), (1234.56, "1,235"), (-3.14159, "-3.142"), (2e9, "2.000e+09"),
     (1e-7, "1.000e-07"), (math.nan, "–"), (math.inf, "–"), (100.0, "100")],
)  # fmt: skip
def test_numbers_have_sensible_digits(value, text):
    assert number(value) == text


def test_counts_and_shares():
    assert (count(1234567.0), percent(0.12345), percent(math.nan)) == ("1,234,567", "12.3 %", "–")


@given(st.text())
def test_visible_text_prints_and_can_be_written(text):
    shown = escape_unprintable(text)
    assert shown.isprintable()
    shown.encode("utf-8")
    assert escape_unprintable(shown) == shown


@given(st.text(min_size=1))
def test_figure_text_has_no_formula_and_no_hidden_name(text):
    shown = figure_text(text)
    assert not shown.startswith("_")
    assert "$" not in shown.replace(r"\$", "")
