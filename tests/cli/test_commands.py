"""The commands as a user types them, in a folder of their own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import ready_process
from conftest import TINY

COMMAND = [sys.executable, "-m", "intrigue"]


def intrigue(*arguments, cwd, code=0, fresh=False):
    """What a command wrote; from a process that has torch loaded already, or a `fresh` one."""
    if fresh:
        done = subprocess.run([*COMMAND, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, check=False)
    else:
        done = ready_process.run("intrigue", arguments, cwd=cwd)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, done.stderr


def tiny(**changes):
    return [f"--{key.replace('_', '-')}={value}" for key, value in {**TINY, **changes}.items()]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One small finished run; (its working folder, its path)."""
    place = tmp_path_factory.mktemp("work")
    out, error = intrigue("train", *tiny(), "--out", "maze", cwd=place, fresh=True)
    assert out.strip() == "maze"
    assert "640" in error and "%" in error, "progress goes to stderr"
    return place


def test_the_run_folder_is_as_promised(run):
    names = {path.name for path in (run / "maze").iterdir()}
    assert {"config.json", "provenance.json", "metrics.csv", "episodes.csv", "checkpoints", "DONE"} <= names
    provenance = json.loads((run / "maze" / "provenance.json").read_text())
    assert provenance["seed"] == 0
    assert provenance["versions"]["torch"]
    header = (run / "maze" / "metrics.csv").read_text().splitlines()[0].split(",")
    assert header[:3] == ["step", "frame", "wall_seconds"]
    assert {"charts/episodic_return", "charts/SPS", "charts/coverage", "intrinsic/raw_mean"} <= set(header)


def test_config_repeats_the_run(run):
    intrigue("train", "--config", "maze/config.json", "--out", "again", "--quiet", cwd=run)
    first, second = (intrigue("digest", name, cwd=run)[0] for name in ("maze", "again"))
    assert first == second
    assert len(first.strip()) == 64


def test_resume_goes_on_and_says_where_it_is(run):
    out, _ = intrigue("train", *tiny(steps=100), "--out", "short", "--quiet", cwd=run)
    out, _ = intrigue("resume", "short", "--steps", "640", "--quiet", cwd=run)
    assert "step 640 of 640" in out
    assert intrigue("digest", "short", cwd=run)[0] == intrigue("digest", "maze", cwd=run)[0]
    assert "step 640 of 640" in intrigue("resume", "short", cwd=run)[0], "a finished run is no error"
    intrigue("resume", "short", "--steps", "10", cwd=run, code=2)


def test_verify_and_digest(run):
    assert "whole" in intrigue("verify", "maze", cwd=run, fresh=True)[0]
    assert json.loads(intrigue("verify", "maze", "--json", cwd=run)[0])["ok"] is True


def test_quiet_is_quiet(run):
    out, error = intrigue("train", *tiny(steps=100), "--out", "silent", "--quiet", cwd=run)
    assert (out.strip(), error) == ("silent", "")


def test_default_folder_names_do_not_collide(run):
    first = intrigue("train", *tiny(steps=20), "--quiet", cwd=run)[0].strip()
    second = intrigue("train", *tiny(steps=20), "--quiet", cwd=run)[0].strip()
    assert first != second
    assert first.startswith("runs/rooms__nnmc__ppo__0")


def test_train_into_a_run_refuses(run):
    _, error = intrigue("train", *tiny(), "--out", "maze", cwd=run, code=2)
    assert f"intrigue resume {run / 'maze'}" in error


@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_eval_plays_and_films(run, suffix):
    out, _ = intrigue("eval", "maze", "--episodes", 3, "--video", f"film{suffix}", cwd=run)
    assert out.startswith("3 episodes: return")
    assert (run / f"film{suffix}").stat().st_size > 1000
    fields = json.loads(intrigue("eval", "maze", "--episodes", 2, "--greedy", "--json", cwd=run)[0])
    assert fields["episodes"] == 2


def test_list_names_everything(run):
    for kind, known in {
        "rewards": [
            "aps",
            "apt",
            "cic",
            "counts",
            "diayn",
            "disagreement",
            "e3b",
            "episodic",
            "icm",
            "mix",
            "ngu",
            "nnm",
            "nnmc",
            "none",
            "proto",
            "random",
            "re3",
            "ride",
            "rnd",
            "rnd_alpha",
            "smm",
        ],
        "agents": ["ddpg", "dqn", "ppo", "random"],
        "envs": ["atari", "chain", "dmc", "gym", "noisy-tv", "rooms"],
        "presets": [
            "aps-urlb",
            "apt-urlb",
            "cic-urlb",
            "diayn-urlb",
            "disagreement-atari",
            "disagreement-atari-int-ext",
            "disagreement-atari-small",
            "disagreement-urlb",
            "icm-atari",
            "icm-atari-int-ext",
            "icm-urlb",
            "nnm-atari",
            "nnm-atari-int-ext",
            "nnm-atari-small",
            "nnm-centered-atari",
            "nnm-centered-atari-int-ext",
            "nnm-ensemble-urlb",
            "nnm-floor-atari",
            "nnm-floor-atari-int-ext",
            "nnm-knn-atari",
            "nnm-knn-atari-int-ext",
            "nnm-literal-atari",
            "nnm-literal-atari-int-ext",
            "nnm-state-urlb",
            "nnm-urlb",
            "nnm-urlb-small",
            "nnmc-urlb",
            "none-atari",
            "none-atari-small",
            "proto-urlb",
            "quickstart",
            "random-atari",
            "rnd-atari",
            "rnd-atari-int-ext",
            "rnd-urlb",
            "scratch-urlb",
            "smm-urlb",
        ],
        "studies": [
            "fig1",
            "fig4",
            "fig5",
            "fig6",
            "fig7",
            "forms",
            "quickstart",
            "rewards",
            "table2",
            "table3",
            "table4",
        ],
    }.items():
        lines = intrigue("list", kind, cwd=run)[0].splitlines()
        assert [line.split()[0] for line in lines] == known
        assert all(len(line.split()) > 3 for line in lines), "every name has a summary"
        assert list(json.loads(intrigue("list", kind, "--json", cwd=run)[0])) == known


def test_doctor_finds_and_tests(run):
    out, _ = intrigue("doctor", cwd=run)
    assert out.count("\nok") == 2
    assert "torch" in out
    fields = json.loads(intrigue("doctor", "--no-test", "--json", cwd=run)[0])
    assert fields["checks"] == []


def test_reproduce_fig1(run):
    out, _ = intrigue("reproduce", "fig1", "--out", "fig1", cwd=run)
    assert "Does not hold" in out and "Holds" in out
    assert {"fig1.png", "fig1.svg", "fig1.csv", "table.csv", "words.txt"} <= {p.name for p in (run / "fig1").iterdir()}
    assert intrigue("reproduce", "fig1", "--out", "other", "--json", cwd=run)[0].startswith("{")
    assert (run / "fig1" / "fig1.csv").read_bytes() == (run / "other" / "fig1.csv").read_bytes()


@pytest.mark.parametrize(
    ("env", "changes"),
    [
        ("gym/CartPole-v1", {"reward": "rnd", "curiosity.ext-coef": 1.0}),
        ("gym/Pendulum-v1", {"reward": "nnm", "curiosity.streams": "two", "curiosity.ext-coef": 2.0}),
        ("gym/FrozenLake-v1", {"reward": "nnmc", "reward.source": "knn", "reward.encoder": "identity"}),
        ("gym/CartPole-v1", {"reward": "none", "env.native-vector": "true"}),
        ("noisy-tv", {"reward": "nnm", "reward.encoder": "icm"}),
        ("chain", {"reward": "nnm", "reward.encoder": "idf", "reward.form": "floor", "reward.features": "unit"}),
        ("rooms", {"reward": "nnmc", "env.view": "pixels", "agent.features": 8, "curiosity.warmup-steps": 100}),
    ],
)
def test_every_family_trains_and_resumes(run, env, changes, tmp_path):
    allowed = {
        key: value
        for key, value in TINY.items()
        if not key.startswith("env") and not (key.startswith("reward.") and changes["reward"] in ("none", "rnd"))
    }
    if env == "rooms":
        allowed.pop("agent.hidden", None)
    arguments = [f"--{key.replace('_', '-')}={value}" for key, value in {**allowed, "steps": 200, **changes}.items()]
    intrigue("train", env, *arguments, "--out", tmp_path / "run", "--quiet", cwd=run)
    _, error = intrigue("resume", tmp_path / "run", "--steps", 300, "--quiet", cwd=run)
    assert ("begin anew" in error) == env.startswith("gym/"), "a restart of what cannot be saved is said, and only that"
    recorded = json.loads((tmp_path / "run" / "provenance.json").read_text()).get("resumed", [])
    assert [each["step"] for each in recorded] == ([200] if env.startswith("gym/") else [])
    intrigue("eval", tmp_path / "run", "--episodes", 1, cwd=run)


def test_a_reward_in_one_file_outside_the_package(run, tmp_path):
    """The whole path: command line, configuration of its own, training, resume, report of its name."""
    file = tmp_path / "surprise.py"
    file.write_text(ONE_FILE_REWARD)
    arguments = [each for each in tiny(steps=200) if not each.startswith(("--reward", "--env.", "--env="))]
    intrigue(
        "train", "rooms", "--reward", f"{file}:Surprise", "--reward.power", "2", *arguments,
        "--out", tmp_path / "run", "--quiet", cwd=run,
    )  # fmt: skip
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["reward"] == {"name": "surprise", "power": 2}
    _, error = intrigue("resume", tmp_path / "run", "--steps", 300, cwd=run, code=4)
    assert "--plugin" in error, "a run never names code to load; the user does"
    intrigue("resume", tmp_path / "run", "--steps", 300, "--plugin", file, "--quiet", cwd=run)
    _, error = intrigue("train", "--reward", f"{file}:Surprise", "--reward.powr", "2", cwd=run, code=2)
    assert "'power'" in error


ONE_FILE_REWARD = '''"""Novelty as the length of the observation's change, to a power."""
from __future__ import annotations

from dataclasses import dataclass

from intrigue.fields import PositiveInt
from intrigue.rewards import register_reward
from intrigue.rewards.base import IntrinsicReward


@dataclass(frozen=True)
class SurpriseConfig:
    """Settings."""

    power: PositiveInt = 1  # of the length


@register_reward("surprise", config=SurpriseConfig)
class Surprise(IntrinsicReward):
    """How far the observation moved."""

    def __init__(self, cfg, spaces):
        super().__init__(cfg, spaces)
        self.power = cfg.power

    def score(self, batch):
        return (batch.next_obs - batch.obs).flatten(2).norm(dim=-1) ** self.power
'''


def test_closed_pipe_is_no_error(run):
    done = subprocess.run(
        f"{sys.executable} -m intrigue list rewards | head -n 1; echo ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", cwd=run, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "0"
    assert "Traceback" not in done.stderr
