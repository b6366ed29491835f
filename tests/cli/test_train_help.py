"""`intrigue train --help` as it reads in a pipe: no line broken in its middle, none wider than there are columns."""

from __future__ import annotations

import itertools

import pytest

from intrigue.api import REGISTRIES
from intrigue.cli import main
from intrigue.cli.train_help import USAGE


def help_lines(columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *more: str) -> list:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["train", *more, "--help"]) == 0
    return capsys.readouterr().out.splitlines()


def test_every_line_fits_and_none_trails(monkeypatch, capsys) -> None:
    rewards, agents = REGISTRIES["rewards"].names(), REGISTRIES["agents"].names()
    for reward, agent in zip(rewards, itertools.cycle(agents), strict=False):
        lines = help_lines(80, monkeypatch, capsys, "--reward", reward, "--agent", agent)
        assert [line for line in lines if len(line) > 80 or line != line.rstrip()] == []
        assert lines[: len(USAGE.splitlines())] == USAGE.splitlines(), "the usage is shown as it is written"


def test_notes_stand_below_where_there_is_little_room_and_beside_where_there_is_more(monkeypatch, capsys) -> None:
    narrow = help_lines(80, monkeypatch, capsys, "--reward", "nnm")
    place = narrow.index("  --reward.keep           float > 0 and <= 1 = 0.8")
    assert narrow[place + 1] == "      share of samples each member learns from, as Disagreement"
    wide = help_lines(200, monkeypatch, capsys, "--reward", "nnm")
    (line,) = (line for line in wide if line.startswith("  --reward.keep "))
    assert line.endswith("= 0.8                share of samples each member learns from, as Disagreement")
    (other,) = (line for line in wide if line.startswith("  --reward.n "))
    assert other.index("rows of Z") == line.index("share of samples")


def test_a_long_note_is_broken_between_words_and_nothing_of_it_is_lost(monkeypatch, capsys) -> None:
    from intrigue.config.run import declaration_of

    lines = help_lines(80, monkeypatch, capsys, "--reward", "ngu")
    flat = " ".join(" ".join(lines).split())
    for note in declaration_of("reward", "ngu").notes.values():
        assert " ".join(note.split()) in flat


def test_a_preset_and_a_config_file_bring_their_names_and_values(tmp_path, monkeypatch, capsys) -> None:
    lines = help_lines(80, monkeypatch, capsys, "--preset", "nnm-urlb")
    assert {"env dmc", "agent ddpg", "reward nnm"} <= set(lines) and "agent ppo" not in lines
    assert "  --pool.num-envs               int >= 1 = 1" in lines, "the preset's, not 16"
    assert "  --run.snapshots         int >= 1,... = 100000,500000,1000000,2000000" in lines, "as it would be typed"
    other = help_lines(80, monkeypatch, capsys, "--preset", "nnm-urlb", "--reward", "rnd")
    assert {"agent ddpg", "reward rnd"} <= set(other), "what is typed wins"
    file = tmp_path / "config.json"
    file.write_text('{"agent": {"name": "dqn"}, "run": {"steps": 77}}')
    lines = help_lines(80, monkeypatch, capsys, "--config", str(file))
    assert "agent dqn" in lines and "  --run.steps             int >= 1 = 77" in lines


def test_help_for_names_that_do_not_fit_shows_their_own_fields(monkeypatch, capsys) -> None:
    lines = help_lines(80, monkeypatch, capsys, "--reward", "e3b", "--agent", "ddpg")
    assert {"agent ddpg", "reward e3b"} <= set(lines)


def test_an_unknown_preset_is_an_error_in_help_too(tmp_path, capsys) -> None:
    assert main(["train", "--preset", "nnm-urbl", "--help"]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and "Did you mean 'nnm-urlb'?" in shown.err
    assert main(["train", "--config", str(tmp_path / "gone.json"), "--help"]) == 2
    assert "--config: cannot read" in capsys.readouterr().err
