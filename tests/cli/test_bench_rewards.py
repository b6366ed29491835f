"""`intrigue bench rewards` as its user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from intrigue.cli import main


def test_table_and_json_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "costs.json"
    arguments = ["bench", "rewards", "rnd", "none", "diayn", "--space", "vector", "--device", "cpu", "--rounds", "1"]
    assert main([*arguments, "--json", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    written = json.loads(file.read_text())
    assert written["rollout"] == [128, 8]
    assert (
        [line.split()[1] for line in lines[1:]]
        == [row["reward"] for row in written["rows"]]
        == ["rnd", "none", "diayn"]
    )
    rnd, none, diayn = written["rows"]
    assert rnd["score_us"] > 10 * none["score_us"] > 0, "two networks cost more than nothing"
    assert rnd["learn_us"] > rnd["score_us"], "learning is several passes of what scoring is one of"
    assert 0 <= none["share"] < 0.05 < rnd["share"] < 1
    assert diayn["score_us"] > 0, "rewards with skills are measured too"


def test_wrong_arguments_are_told_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "rewards", "rdn", "--rounds", "0"]) == 2
    told = capsys.readouterr().err
    assert "Did you mean 'rnd'?" in told and "rounds: 0" in told
