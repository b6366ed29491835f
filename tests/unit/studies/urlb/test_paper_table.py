"""Table 4 in the paper's own form: every published score is there whatever was run, and ours beneath its method's."""

from __future__ import annotations

import json

import pytest

from intrigue.cli import main
from intrigue.scores.normalized import EXPERTS
from intrigue.scores.urlb_published import DOMAINS, PAPER_12, RERUN, TASKS_12, tasks_of
from intrigue.studies.base import Conclusion
from intrigue.studies.show import show
from places import ROOT
from urlb_rows import judge, tuning, world

RESULTS = ROOT / "results" / "urlb-h200.csv"


def cells_of(board):
    """{(method, by): cells}; a method's name stands in the first of its lines only."""
    found, method = {}, ""
    for name, source, *cells in board.rows:
        method = name or method
        assert (method, source) not in found
        found[method, source] = cells
    return found


def boards_of(runs):
    return dict(zip(DOMAINS, judge("table4", runs).paper_tables, strict=True))


def test_all_twelve_tasks_and_all_published_columns_whatever_was_run():
    boards = boards_of([tuning("walker_run", "NNM", 0.5)])
    for domain, board in boards.items():
        cells, tasks = cells_of(board), tasks_of(domain)
        assert cells["expert", "URLB"] == [f"{EXPERTS[task]:g}" for task in tasks]
        for method in ("ICM", "RND", "APS", "Disagreement", "APT", "NNM"):
            assert cells[method, "paper"] == [str(PAPER_12[method][task]) for task in tasks]
        for method in ("ICM", "RND", "APS", "Disagreement", "APT", "Proto", "SMM", "DIAYN", "CIC"):
            assert cells[method, "rerun"] == [str(RERUN[method].get(task, "-")) for task in tasks]
    assert sum(len(board.headings) - 2 for board in boards.values()) == len(TASKS_12)


def test_printed_scores_stand_where_the_paper_has_them():
    """Three cells read off the published tables."""
    boards = boards_of([tuning("walker_run", "NNM", 0.5)])
    assert boards["walker"].headings == ("method", "by", "flip", "run", "stand", "walk")
    assert cells_of(boards["walker"])["NNM", "paper"] == ["825 ± 86", "535 ± 9", "961 ± 2", "949 ± 13"]
    assert boards["jaco"].headings[2:] == ("bottom_left", "bottom_right", "top_left", "top_right")
    assert cells_of(boards["jaco"])["CIC", "rerun"] == ["147 ± 8", "150 ± 6", "145 ± 9", "-"]


def test_ours_stand_beneath_their_method_task_by_task():
    runs = [*world({"APT": 0.5}, tasks=["walker_run"]), tuning("walker_stand", "scratch", 0.25)]
    cells = cells_of(boards_of(runs)["walker"])
    assert cells["APT", "ours"] == ["-", "402 ± 6", "-", "-"]  # 796 times 0.5 and 0.51
    assert cells["scratch", "ours"] == ["-", "-", "246", "-"]  # 984 / 4
    assert ("ICM", "ours") not in cells and ("scratch", "paper") not in cells


def test_the_papers_column_is_printed_once_and_other_readings_have_lines_of_their_own():
    runs = world({"NNM": 0.5, "NNM ensemble": 0.4}, tasks=["walker_run"])
    runs += [tuning("walker_run", "NNM", 0.3, changes="pool.num_envs=8")]
    cells = cells_of(boards_of(runs)["walker"])
    assert {source for method, source in cells if method == "NNM ensemble"} == {"ours"}
    assert cells["NNM, 8 environments", "ours"] == ["-", "239", "-", "-"]
    methods = [method for method, source in cells if source == "ours"]
    assert methods == ["NNM", "NNM, 8 environments", "NNM ensemble"]


def test_runs_of_no_known_method_stand_last():
    runs = [tuning("walker_run", "NNM", 0.5), tuning("walker_run", "NNM", 0.3, changes="agent.batch=256")]
    assert boards_of(runs)["walker"].rows[-1] == ("nnm-urlb agent.batch=256", "ours", "-", "239", "-", "-")


def test_other_budgets_than_the_published_are_said_above():
    runs = world({"NNM": 0.5}, tasks=["walker_run"]) + world({"NNM": 0.5}, tasks=["quadruped_run"], snapshot=500_000)
    titles = {domain: board.title for domain, board in boards_of(runs).items()}
    assert titles["walker"] == "walker: mean returns"
    assert titles["quadruped"] == "quadruped: mean returns (ours 500k + 100k frames; published 2M + 100k)"
    assert titles["jaco"] == "jaco: mean returns"


@pytest.mark.parametrize(
    ("method", "frames", "told"),
    [
        ("scratch", 100_000, ""),
        ("scratch", 50_000, " (ours 0 + 50k frames; published 2M + 100k)"),
        ("NNM", 50_000, " (ours 2M + 50k frames; published 2M + 100k)"),
    ],
)
def test_only_what_ours_were_given_is_said(method, frames, told):
    """No pre-training is made up where there was none, and nothing is said of a domain without a run."""
    boards = boards_of([tuning("walker_run", method, 0.5, frames=frames)])
    titles = {domain: board.title for domain, board in boards.items()}
    plain = {domain: f"{domain}: mean returns" for domain in DOMAINS}
    assert titles == {**plain, "walker": plain["walker"] + told}


def test_laptop_sizes_are_said():
    board = boards_of([tuning("walker_run", "NNM", 0.5, snapshot=2_000, frames=1_500, preset="nnm-urlb-small")])[
        "walker"
    ]
    assert board.title == "walker: mean returns (ours 2k + 1.5k frames, laptop sizes; published 2M + 100k)"


def test_a_window_of_80_characters_has_room(capsys, monkeypatch):
    monkeypatch.setenv("EVALUATIONS.columns", "80")
    told = judge("table4", [tuning("jaco_reach_top_left", "NNM", 0.5, changes="pool.num_envs=8")])
    show("Table 4", "from files", Conclusion("headline", [], paper_tables=told.paper_tables))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any("112 ± 57" in line and "137 ± 18" in line for line in lines)


@pytest.mark.parametrize(("study", "count"), [("table4", 3), ("fig6", 0)])
def test_they_are_in_the_json(study, count, tmp_path, capsys):
    assert main(["reproduce", study, "--from", str(RESULTS), "--out", str(tmp_path), "--json"]) == 0
    boards = json.loads(capsys.readouterr().out)["boards"]
    assert len(boards) == count
    assert not boards or {"title", "headings", "rows"} == set(boards[0])
