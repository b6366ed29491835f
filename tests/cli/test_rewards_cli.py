"""Composed rewards and citations as a user types them."""

from __future__ import annotations

import csv
import json
import subprocess
import sys

import pytest

from conftest import TINY
from intrigue.cli import main
from intrigue.rewards import REWARDS
from places import PLUGINS

EXPRESSION = (
    "0.5*nnm(feature_dim=8, hidden=8, blocks=0) + schedule(rnd(feature_dim=8, hidden=8), 1, 0, 400)"
    " + gate(rnd(feature_dim=8, hidden=8), nnm(feature_dim=8, hidden=8, blocks=0), 0.1)"
)
PARTED = PLUGINS / "parted_rewards.py"


def answer(capsys, *arguments, code=0):
    """What the command writes to stdout and to stderr."""
    assert main([*map(str, arguments)]) == code
    output = capsys.readouterr()
    assert "Traceback" not in output.err
    return output.out, output.err


@pytest.fixture
def _extra_rewards():
    """Plug-ins named on the command line stay with the process; here they go again."""
    before = list(REWARDS._extra_files)
    yield
    REWARDS._extra_files[:] = before


def tiny(**changes):
    kept = {key: value for key, value in TINY.items() if not key.startswith("reward.")}
    return [f"--{key.replace('_', '-')}={value}" for key, value in {**kept, **changes}.items()]


def test_a_composed_run_trains_logs_its_parts_and_resumes_to_the_bit(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    answer(capsys, "train", *tiny(), "--reward", EXPRESSION, "--out", "whole", "--quiet")
    answer(capsys, "train", *tiny(steps=200), "--reward", EXPRESSION, "--out", "parts", "--quiet")
    answer(capsys, "resume", "parts", "--steps", "640", "--quiet")
    answer(capsys, "train", "--config", "whole/config.json", "--out", "again", "--quiet")
    digests = {answer(capsys, "digest", name)[0] for name in ("whole", "parts", "again")}
    assert len(digests) == 1
    rows = list(csv.DictReader((tmp_path / "whole" / "metrics.csv").read_text().splitlines()))
    weights = [float(row["intrinsic/part/schedule"]) for row in rows]
    steps = [int(float(row["step"])) for row in rows]
    # The weight of a rollout is the one at its first step.
    assert weights == pytest.approx([max(0.0, 1 - (step - 64) / 400) for step in steps])
    assert all(float(row["intrinsic/part/nnm"]) > 0 and float(row["intrinsic/part/rnd"]) > 0 for row in rows)
    config = json.loads((tmp_path / "whole" / "config.json").read_text())
    assert config["reward"]["name"] == "mix"


@pytest.mark.usefixtures("_extra_rewards")
def test_rewards_of_plug_ins_can_be_parts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    composed = ["--reward", "parted + 2*none", "--out", "run", "--quiet"]
    answer(capsys, "train", "--plugin", PARTED, *tiny(steps=100), *composed)
    assert "intrinsic/part/parted/length" in (tmp_path / "run" / "metrics.csv").read_text().splitlines()[0]
    REWARDS._extra_files.clear()
    _, error = answer(capsys, "resume", "run", "--steps", "200", code=4)
    assert "--plugin" in error and "'parted'" in error
    answer(capsys, "resume", "run", "--steps", "200", "--plugin", PARTED, "--quiet")


def test_dry_run_shows_the_expression_as_it_will_be_kept(capsys):
    out, _ = answer(capsys, "train", "--reward", "  nnm*.5+rnd ", "--dry-run")
    assert json.loads(out)["reward"] == {"name": "mix", "expression": "0.5*nnm + rnd"}


def test_help_for_an_expression_is_that_of_mix(capsys):
    out, _ = answer(capsys, "train", "--reward", "0.5*nnm + rnd", "--help")
    assert "--reward.expression" in out


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("0.5*nm + rnd", ["character 5", "Did you mean 'nnm'?"]),
        ("nnm(n=0, m=3)", ["2 problems", "character 5", "character 10"]),
        ("nnm +", ["character 6"]),
        ("rnd*'\x1b[31m'", ["finite number"]),
    ],
)
def test_wrong_expressions_exit_2_with_the_place(expression, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, error = answer(capsys, "train", "--reward", expression, code=2)
    assert all(word in error for word in words)
    assert "\x1b" not in error
    assert list(tmp_path.iterdir()) == []


def test_a_citation_is_printed(capsys):
    out, error = answer(capsys, "list", "rewards", "--cite", "nnm")
    assert error == ""
    assert out.startswith("@article{chen2022nnm,") and out.endswith("}\n")
    out, _ = answer(capsys, "list", "rewards", "--cite", "nnmc*rnd + nnm + none")
    assert out.count("@") == 2, "a paper is cited once"
    out, _ = answer(capsys, "list", "rewards", "--cite", "rnd", "--json")
    assert json.loads(out)["rnd"].startswith("@inproceedings{")


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("rewards", "rmd", "Did you mean 'rnd'?"),
        ("rewards", "none", "comes from no paper"),
        ("rewards", "nnm + rmd", "character 7"),
        ("envs", "rooms", "only rewards have citations"),
    ],
)
def test_what_cannot_be_cited_exits_2(kind, name, words, capsys):
    out, error = answer(capsys, "list", kind, "--cite", name, code=2)
    assert out == ""
    assert words in error


def test_citations_need_no_torch():
    code = "import sys; from intrigue.api import find_citations; find_citations('nnm + rnd')\n"
    code += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
