"""Whole numbers as they are typed: every command takes and refuses them as `train` does."""

from __future__ import annotations

import pytest

from conftest import TINY
from intrigue.cli import COMMANDS, main
from intrigue.cli.bench import TARGETS
from intrigue.config.run import resolve
from intrigue.run import play
from intrigue.run.driver import start
from intrigue.studies import engine


def answer(arguments: list[str]) -> object:
    """The exit code, also where the parser of options leaves by itself."""
    try:
        return main(arguments)
    except SystemExit as stop:
        return stop.code


def test_resume_takes_the_steps_that_train_takes(tmp_path, capsys) -> None:
    run = str(start(resolve({**TINY, "steps": 40}), out=tmp_path / "maze", quiet=True).path)
    assert main(["resume", run, "--steps", "1e2", "--quiet"]) == 0
    assert "of 100\n" in capsys.readouterr().out
    assert main(["resume", run, "--steps", "1_20", "--quiet"]) == 0
    assert "of 120\n" in capsys.readouterr().out
    for typed in ("0", "-5"):
        assert main(["resume", run, "--steps", typed]) == 2
        assert f"--steps: {typed} is out of range; it must be >= 1." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["resume", "gone"], "--steps"),
        (["finetune", "gone", "--task", "walker_run"], "--snapshot"),
        (["finetune", "gone", "--task", "walker_run"], "--steps"),
        (["finetune", "gone", "--task", "walker_run"], "--eval-every"),
        (["finetune", "gone", "--task", "walker_run"], "--n-step"),
        (["finetune", "gone", "--task", "walker_run"], "--seed"),
        (["eval", "gone"], "--episodes"),
        (["eval", "gone"], "--seed"),
        (["reproduce", "table4"], "--jobs"),
    ],
)
@pytest.mark.parametrize("typed", ["abc", "1.5"])
def test_what_is_no_whole_number_is_refused_in_plain_words(command, option, typed, capsys) -> None:
    assert answer([*command, option, typed]) == 2
    told = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert f"Error parsing {option}: {typed!r} is not a whole number." in told
    assert "NoneType" not in told and "literal" not in told


@pytest.mark.parametrize("option", ["--steps", "--snapshot", "--eval-every"])
def test_finetune_reads_large_numbers_as_train_does(option, tmp_path, capsys) -> None:
    for typed in ("1e4", "1_000"):
        assert main(["finetune", str(tmp_path / "gone"), "--task", "walker_run", option, typed]) == 2
        assert "does not exist; give the folder of a run" in capsys.readouterr().err, "the number was taken"


def test_negative_numbers_are_refused_before_anything_is_done(monkeypatch, capsys) -> None:
    for module, name in ((play, "play"), (engine, "run_study")):
        monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("it began"))
    assert main(["eval", "gone", "--seed", "-3"]) == 2
    assert "--seed: -3 is out of range; it must be >= 0." in capsys.readouterr().err
    assert main(["reproduce", "table4", "--jobs", "-1"]) == 2
    assert "--jobs: -1 is out of range; it must be >= 0." in capsys.readouterr().err


def test_the_summary_of_bench_has_all_its_targets() -> None:
    words = {"score": "nuclear norm", "rewards": "rewards", "env": "environments", "train": "training"}
    assert words.keys() == TARGETS.keys()
    assert all(word in COMMANDS["bench"] for word in words.values())
