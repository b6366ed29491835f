"""URLB's table and pictures of domains that methods do not share, and of long names; on made-up runs."""

from __future__ import annotations

import pytest

from intrigue.scores.urlb_published import tasks_of
from intrigue.studies.common import plots as common_plots
from intrigue.studies.fig6 import TASKS
from intrigue.studies.urlb import plots
from intrigue.studies.urlb.results import compare_finetunings
from study_rows import rows_of
from urlb_rows import judge, tuning, world


@pytest.fixture
def figures(monkeypatch):
    """Those that are drawn, instead of files."""
    drawn = []
    monkeypatch.setattr(common_plots, "write_picture", lambda figure, *_: drawn.append(figure) or [])
    return drawn


def test_long_names_stay_within_the_picture(tmp_path, figures):
    changes = "agent.batch=128 agent.capacity=50000 agent.hidden=256 agent.learning_starts=1000 reward.hidden=256"
    runs = [tuning("walker_run", "NNM", 0.5), tuning("walker_run", "NNM", 0.4, changes=changes)]
    plots.draw_scores(compare_finetunings(runs), tmp_path, "Table 4")
    [figure] = figures
    figure.draw_without_rendering()
    [axes] = figure.axes
    for label in axes.get_yticklabels():
        assert label.get_window_extent().x0 >= 0, label.get_text()
    assert " ".join(axes.get_yticklabels()[1].get_text().split()) == f"nnm-urlb {changes}"
    assert axes.get_window_extent().width > 0.4 * figure.bbox.width


def unlike_domains():
    """NNM on three domains, the arm with eight environments; APT on the walker alone."""
    quadruped, jaco = tasks_of("quadruped"), tasks_of("jaco")
    return [
        *world({"APT": 0.5, "NNM": 0.6}, tasks_of("walker"), seeds=1),
        *world({"NNM": 0.4}, quadruped, seeds=1, snapshot=500_000),
        *(tuning(task, "NNM", 0.2, changes="pool.num_envs=8", snapshot=100_000) for task in jaco),
    ]


def test_a_domain_that_methods_do_not_share_has_means_of_its_own():
    rows = rows_of(judge("table4", unlike_domains()))
    assert rows["mean, NNM, quadruped"].ours == "0.400" and rows["mean, NNM, quadruped"].verdict == "SHORT"
    assert rows["mean, NNM, 8 environments, jaco"].ours == "0.200"
    assert rows["mean, NNM, 8 environments, jaco"].verdict is None
    assert "mean, APT, quadruped" not in rows and "mean, NNM, jaco" not in rows
    assert rows["mean, NNM, walker"].ours == "0.600"
    part = [run for run in unlike_domains() if run.task != "quadruped_jump"]
    assert "mean, NNM, quadruped" not in rows_of(judge("table4", part)), "three of its four tasks"
    words = " ".join(judge("table4", unlike_domains()).words)
    assert "walker_walk, but those of quadruped and jaco, which not all methods were run on." in words
    assert "Missing: 4 of 12 tasks in runs that count (jaco" in words
    assert "but those of" not in " ".join(judge("table4", world({"APT": 0.5}, tasks_of("walker"))).words)


def test_pictures_of_unlike_domains(tmp_path, figures):
    results = compare_finetunings(unlike_domains())
    plots.draw_scores(results, tmp_path, "Table 4")
    plots.draw_finetunings(results, TASKS, ("APT", "NNM"), tmp_path, "Figure 6")
    means, curves = figures[:2]
    part = [run for run in unlike_domains() if run.task != "jaco_reach_top_left"]
    plots.draw_scores(compare_finetunings(part), tmp_path, "Table 4")
    assert len(figures.pop().axes) == 2, "where nobody has all tasks, nothing of ours could be shown"
    titles = [axes.get_title(loc) for axes in means.axes for loc in ("left", "center") if axes.get_title(loc)]
    assert titles == ["walker, 4 tasks", "quadruped, 4 tasks", "jaco, 4 tasks"]
    for figure in figures:
        assert "jaco 100k, quadruped 500k, walker 2M frames without a reward" in figure.get_suptitle()
        # What is published is of one environment: it has the colour of that, wherever it stands.
        several = plots.color_of("NNM, 8 environments", ["APT", "NNM", "NNM, 8 environments"])
        marks = [line for axes in figure.axes for line in axes.lines if line.get_marker() == "D"]
        assert plots.FIXED["NNM"] in {mark.get_color() for mark in marks}
        assert several not in {mark.get_color() for mark in marks}
    assert any(line.get_color() == several for axes in curves.axes for line in axes.lines)


def test_published_scores_stand_beside_several_environments_if_they_are_all_there_is(tmp_path, figures):
    runs = [tuning(task, "NNM", 0.2, changes="pool.num_envs=8") for task in tasks_of("jaco")]
    plots.draw_scores(compare_finetunings(runs), tmp_path, "Table 4")
    [axes] = figures[0].axes
    assert [line.get_marker() for line in axes.lines if line.get_marker() != "None"] == ["D", "o"]
