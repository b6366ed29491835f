"""200 wrong configurations: exit 2, all problems named, no traceback, nothing created; and quickly."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from intrigue.cli import main

UNKNOWN = ["room", "atari", "gymm/CartPole-v1", "gym/CartPol-v1", "gym/", "rooms/extra", "", "../x", "\x1b[31m"]
BAD_VALUES = {
    "steps": ["0", "-5", "many", "1.5", "nan", "inf", "1e400", ""],
    "seed": ["-1", "x", "0.5"],
    "device": ["gpu", "tpu", "CUDA"],
    "checkpoint-every": ["0", "-1", "x"],
    "agent": ["pp", "PPO2", "sac"],
    "reward": ["nmm", "nnmm", "curiosity", "file.py:Nothing"],
    "agent.clip": ["0", "-0.1", "wide", "nan"],
    "agent.minibatches": ["0", "17", "2.5"],
    "agent.discount": ["1", "1.5", "-0.1"],
    "agent.ignore-done": ["maybe", "2"],
    "agent.trunk": ["natur", "resnet"],
    "agent.clipp": ["0.1"],
    "reward.form": ["centred", "rato"],
    "reward.source": ["knnn", "ensembel"],
    "reward.n": ["0", "-2", "five"],
    "reward.nn": ["5"],
    "pool.num-envs": ["0", "x"],
    "pool.workers": ["17", "-2"],
    "pool.step-timeout-seconds": ["0", "-3"],
    "curiosity.int-coef": ["inf", "x"],
    "curiosity.streams": ["three"],
    "curiosity.obs-moments": ["warm-up"],
    "env.rooms": ["0", "x"],
    "env.size": ["7"],
    "run.keep": ["0"],
    "runn.keep": ["1"],
    "nonsense": ["1"],
    "preset": ["quickstrat", "atari"],
    "config": ["/does/not/exist.json"],
}
BAD_FILES = [
    "", "{", "[]", "3", '"text"', '{"env": 3}', '{"schema": 99}', '{"run": {"steps": "x"}}', '{"run": {"steps": 0}}',
    '{"reward": {"name": "nope"}}', '{"reward": {"name": "nnm", "form": 3}}', '{"agent": {"name": "ppo", "clip": NaN}}',
    '{"agent": {"name": "ppo", "clip": true}}', '{"surprise": {"a": 1}}', '{"run": {"seed": 1, "seed": 2}}',
    '{"env": {"id": "rooms", "view": "touch"}}', '{"curiosity": {"streams": "two", "scale": "total"}}',
    '{"agent": {"name": "dqn"}, "curiosity": {"scale": "return"}}', '{"agent": {"name": "dqn", "batch": 2000000}}',
    '{"pool": {"num_envs": 2, "workers": 3}}', "\x00\x01", '{"run": {"steps": 1e999}}', '{"run": []}', "{" * 5000,
]  # fmt: skip


def cases() -> list[list[str]]:
    """At least 200 argument lists, each wrong in at least one way, many in several."""
    single = [["train", f"--{key}", value] for key, values in BAD_VALUES.items() for value in values]
    environments = [["train", env] for env in UNKNOWN]
    missing = [["train", "--steps"], ["train", "rooms", "chain"], ["train", "--reward"], ["trian"], ["resume"],
               ["list", "reward"], ["resume", "nowhere"], ["verify", "nowhere"], ["digest", "nowhere"],
               ["eval", "nowhere"], ["reproduce", "fig99"], ["report", "nowhere"], ["list"],
               ["verify", "a", "b"]]  # fmt: skip
    rng = random.Random(0)
    several = []
    for _ in range(100):
        keys = rng.sample(sorted(set(BAD_VALUES) - {"config", "preset"}), rng.randint(2, 4))
        several.append(["train", *itertools.chain(*((f"--{key}", rng.choice(BAD_VALUES[key])) for key in keys))])
    return single + environments + missing + several


CASES = cases()


def run_main(argv, capsys):
    try:
        code = main(argv)
    except SystemExit as leaving:
        code = leaving.code
    return code, capsys.readouterr()


@pytest.mark.parametrize("argv", CASES, ids=range(len(CASES)))
def test_wrong_arguments_exit_2_and_create_nothing(argv, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, output = run_main(argv, capsys)
    assert code == 2, output.err
    assert "Traceback" not in output.err
    assert output.err.strip()
    assert "\x1b[31m" not in output.err.replace("\x1b[31m╭", ""), "control characters of the user must not be echoed"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", BAD_FILES, ids=range(len(BAD_FILES)))
def test_wrong_files_exit_2_and_create_nothing(text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text(text)
    code, output = run_main(["train", "--config", "bad.json"], capsys)
    assert code == 2
    assert "Traceback" not in output.err
    assert [path.name for path in tmp_path.iterdir()] == ["bad.json"]


def test_there_are_two_hundred_of_them():
    assert len(CASES) + len(BAD_FILES) >= 200


def test_all_problems_are_told_at_once_with_the_nearest_name(capsys):
    code, output = run_main(
        ["train", "rooms", "--agent.clipp", "1", "--reward.form", "centred", "--steps", "x", "--sede", "1"], capsys
    )
    assert code == 2
    assert "4 problems" in output.err
    for expected in ("'clip'", "'centered'", "run.steps", "'seed'"):
        assert expected in output.err


@pytest.mark.parametrize(
    ("argv", "limit", "code"),
    [
        (["--help"], 1.0, 0),
        (["train", "rooms", "--agent.clipp", "1"], 2.0, 2),
        (["train", "gym/CartPol-v1"], 2.0, 2),
        (["list", "rewards"], 2.0, 0),
    ],
)
def test_answers_come_quickly(argv, limit, code):
    """Best of three, since machines are shared; none of these may load torch."""
    seconds = []
    for _ in range(3):
        began = time.monotonic()
        done = subprocess.run([sys.executable, "-m", "intrigue", *argv], capture_output=True, check=False)
        seconds.append(time.monotonic() - began)
        assert done.returncode == code
    assert min(seconds) < limit


def test_importing_the_package_loads_no_torch():
    code = "import sys, intrigue, intrigue.config.run, intrigue.api; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_config_file_of_a_run_is_accepted(tmp_path, capsys):
    from intrigue.config.run import resolve

    config = resolve({"reward": "nnm", "reward.n": 7, "steps": 123})
    path = Path(tmp_path / "config.json")
    path.write_text(json.dumps(config.to_json()))
    code, output = run_main(["train", "--config", str(path), "--seed", "5", "--dry-run"], capsys)
    assert code == 0
    tree = json.loads(output.out)
    assert tree["reward"]["n"] == 7
    assert tree["run"]["steps"] == 123
    assert tree["run"]["seed"] == 5
