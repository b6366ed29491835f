"""`intrigue report` as a person calls it."""

from __future__ import annotations

from pathlib import Path

import pytest

from intrigue.cli import main

TINY = [
    "--env.rooms", "2", "--env.room-size", "3", "--env.max-steps", "40", "--pool.num-envs", "4", "--pool.workers", "0",
    "--agent.rollout-steps", "16", "--agent.hidden", "8", "--reward.feature-dim", "8", "--reward.hidden", "8",
    "--steps", "320", "--threads", "1", "--device", "cpu", "--quiet",
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "curious"
    assert main(["train", "rooms", "--reward", "rnd", *TINY, "--out", str(path)]) == 0
    return path


def test_one_run_gets_its_page_and_figures_in_its_folder(run, capsys):
    assert main(["report", str(run)]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"{run}/report.html\n"
    assert shown.err.startswith("rnd visited ")
    assert (run / "figures" / "visits.png").stat().st_size > 1000
    assert (run / "figures" / "coverage.svg").stat().st_size > 1000
    assert main(["verify", str(run)]) == 0, "a report leaves the run as it was"


def test_several_runs_get_a_page_here(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "rooms", "--reward", "rnd", *TINY, "--seed", "1", "--out", "second"]) == 0
    capsys.readouterr()
    assert main(["report", str(run), "second"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "report.html\n"
    assert "mean over 2 seeds, 95 % intervals" in shown.err
    assert Path("figures/return.png").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gone"], "does not exist"),
        (["."], "holds no run"),
        (["RUN", "--out", "x.txt"], "ends in .html"),
        ([], "no run was given"),
    ],
)
def test_wrong_usage_is_answered_and_leaves_nothing(run, arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code: object
    try:
        code = main(["report", *(str(run) if each == "RUN" else each for each in arguments)])
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_cannot_be_read_is_damage(tmp_path, capsys):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "config.json").write_text("{")
    assert main(["report", str(tmp_path / "bad")]) == 4
    assert "none of these runs can be read" in capsys.readouterr().err
