"""Runs that are killed, interrupted or starved must verify, resume and end on the calm run's digest."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
import warnings

import pytest

import ready_process
from conftest import TINY
from intrigue.cli import main
from intrigue.config.run import resolve
from intrigue.run import checkpoint
from intrigue.run.driver import resume, start
from intrigue.run.logging.csv_files import read_metrics

importlib.import_module("intrigue.cli.resume")  # with all it needs, once: forks find it loaded

KILLS = (12, pytest.param(100, marks=pytest.mark.slow))
COMMAND = [sys.executable, "-m", "intrigue"]
STEPS = 1200
# Much is saved and little learnt: four rollouts, a checkpoint after each.
BRIEF = {"steps": 256, "checkpoint_every": 64, "agent.epochs": 1, "agent.minibatches": 2, "curiosity.epochs": 1}


def config_file(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(resolve({**TINY, "steps": STEPS, **changes}).to_json()))
    return path


def train_arguments(folder, out):
    return ["train", "--config", str(folder / "config.json"), "--out", str(out), "--quiet"]


def forked(arguments, log=None):
    """The command in a process of its own that has torch loaded already: starting one takes milliseconds.

    What it says on stderr goes to the file `log`, if one is given.
    """

    def run():
        if log is not None:
            sys.stderr = open(log, "w", buffering=1)  # noqa: SIM115
        os._exit(main(arguments))

    process = multiprocessing.get_context("fork").Process(target=run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads; there are none
        process.start()
    return process


def command(*arguments):
    done = ready_process.run("intrigue", arguments)
    return done.returncode, done.stdout.strip(), done.stderr


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The digest of the run that nobody disturbs."""
    folder = tmp_path_factory.mktemp("calm")
    config = resolve({**TINY, "steps": STEPS})
    return start(config, out=folder / "run", quiet=True)


@pytest.fixture(scope="module")
def brief(tmp_path_factory):
    """The same of a shorter run."""
    return start(resolve({**TINY, **BRIEF}), out=tmp_path_factory.mktemp("brief") / "run", quiet=True)


def busy_seconds(pid):
    """How long a process has had a core; unlike the clock, the same on an idle machine and a busy one."""
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            return int(file.read().split()[0]) / 1e9
    except (OSError, IndexError):  # it has ended
        return float("inf")


def killed_after(process, seconds, pause):
    """Kill a process once it has computed so long, and a moment later lest it is never caught while it writes."""
    while process.exitcode is None and busy_seconds(process.pid) < seconds:
        process.join(timeout=0.005)
    process.join(timeout=pause)
    process.kill()
    process.join()
    return process.exitcode


@pytest.mark.parametrize("wanted", KILLS)
def test_kills_lose_nothing(tmp_path, brief, wanted):
    """Commands are killed -9 at random moments, from start to end; the folder is whole every time."""
    rng = random.Random(0)
    config_file(tmp_path, **BRIEF)
    before = os.times()
    forked(train_arguments(tmp_path, tmp_path / "timed")).join()
    after = os.times()
    whole = after.children_user + after.children_system - before.children_user - before.children_system
    out, kills, finished = tmp_path / "run-0", 0, 0
    while kills < wanted:
        process = forked(["resume", str(out), "--quiet"] if out.exists() else train_arguments(tmp_path, out))
        code = killed_after(process, rng.uniform(0, 0.9 * whole), rng.uniform(0, 0.01))
        assert code in (0, -signal.SIGKILL)
        kills += code != 0
        if out.exists():
            verdict = checkpoint.verify(out / "checkpoints")
            assert verdict.ok, verdict.problems
        if (out / "DONE").exists():
            assert checkpoint.digest(out / "checkpoints") == brief.digest()
            finished += 1
            out = tmp_path / f"run-{finished}"
    if out.exists():
        assert resume(out, quiet=True).digest() == brief.digest()
    assert finished > 0, "runs get on between kills"
    start(resolve({**TINY, "steps": 20}), out=tmp_path / "last", quiet=True)
    left = [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]
    assert left == [], "what killed births left behind is removed by the next birth"


@pytest.mark.parametrize("apart", [12, pytest.param(4, marks=pytest.mark.slow)])
def test_every_stopping_point_resumes_to_the_same_digest(tmp_path, brief, apart):
    """Train k, resume to N, for k at every third (slow: every) vector step of a rollout and a half."""
    for index, steps in enumerate(range(4, 100, apart)):
        out = tmp_path / str(index)
        start(resolve({**TINY, **BRIEF, "steps": steps}), out=out, quiet=True)
        assert resume(out, steps=BRIEF["steps"], quiet=True).digest() == brief.digest(), f"stopped at {steps}"


def test_results_of_a_resumed_run_equal_the_calm_runs(tmp_path, calm):
    out = tmp_path / "run"
    start(resolve({**TINY, "steps": 700}), out=out, quiet=True)
    run = resume(out, steps=STEPS, quiet=True)
    clock = ("wall_seconds", "charts/SPS", "time/collect_fraction", "time/curiosity_fraction")
    for name, column in calm.metrics().items():
        if name not in clock:
            assert [repr(x) for x in column] == [repr(x) for x in run.metrics()[name]], name
    assert calm.episodes() == run.episodes()


@pytest.mark.parametrize("reward", ["nnm", "rnd", "none", "nnmc"])
@pytest.mark.parametrize("agent", ["ppo", "random"])
def test_same_seed_same_bits_other_seed_other_bits(tmp_path, reward, agent):
    layer = {**TINY, "reward": reward, "agent": agent, "steps": 320}
    known = {"ppo": lambda key: True, "random": lambda key: key != "agent.hidden"}[agent]
    fields = {"none": (), "rnd": ("feature_dim", "hidden")}.get(reward)
    layer = {
        key: value
        for key, value in layer.items()
        if known(key) and not (fields is not None and key.startswith("reward.") and key[7:] not in fields)
    }
    first, second, other = (
        start(resolve({**layer, "seed": seed}), out=tmp_path / name, quiet=True).digest()
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert first == second
    assert first != other


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_exits_with_its_code(tmp_path, calm, number, code):
    config_file(tmp_path, steps=10**9, **{"pool.workers": 2})
    out = tmp_path / "run"
    process = subprocess.Popen([*COMMAND, *train_arguments(tmp_path, out)], stderr=subprocess.PIPE, text=True)
    while not (out / "metrics.csv").exists():
        time.sleep(0.02)
        assert process.poll() is None
    children = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True, check=True
    ).stdout.split()
    assert len(children) == 2
    began = time.monotonic()
    process.send_signal(number)
    _, error = process.communicate(timeout=20)
    assert process.returncode == code
    assert time.monotonic() - began < 10
    assert "intrigue resume" in error
    assert not any(os.path.exists(f"/proc/{pid}") for pid in children), "a worker was left behind"
    assert command("verify", out)[0] == 0
    assert not (out / "DONE").exists()


def test_the_second_process_in_a_folder_refuses_and_names_the_first(tmp_path):
    config_file(tmp_path, steps=10**9)
    out = tmp_path / "run"
    process = forked(train_arguments(tmp_path, out))
    try:
        while not out.exists():
            time.sleep(0.02)
            assert process.exitcode is None
        code, _, error = command("resume", out)
        assert code == 2
        assert f"pid {process.pid}" in error
        code, _, error = command("train", "--out", out)
        assert code == 2
        assert "already holds" in error
    finally:
        process.kill()
        process.join()


def test_a_damaged_newest_checkpoint_falls_back_loudly_and_ends_the_same(tmp_path, calm, capsys):
    out = tmp_path / "run"
    start(resolve({**TINY, "steps": 800}), out=out, quiet=True)
    newest = sorted((out / "checkpoints").iterdir())[-1]
    payload = newest / "tensors.safetensors"
    content = bytearray(payload.read_bytes())
    content[len(content) // 2] ^= 1
    payload.write_bytes(content)
    assert command("verify", out)[0] == 4
    assert command("digest", out)[0] == 4
    run = resume(out, steps=STEPS, quiet=True)
    assert "is damaged and was passed over" in capsys.readouterr().err
    assert run.digest() == calm.digest()
    assert command("verify", out)[0] == 0
    steps = read_metrics(out / "metrics.csv").columns["step"]
    assert steps == sorted(set(steps))


def test_changed_settings_are_refused(tmp_path):
    out = tmp_path / "run"
    start(resolve({**TINY, "steps": 100}), out=out, quiet=True)
    tree = json.loads((out / "config.json").read_text())
    tree["agent"]["clip"] = 0.3
    (out / "config.json").write_text(json.dumps(tree))
    code, _, error = command("resume", out, "--steps", 200)
    assert code == 4
    assert "digests differ" in error


def test_another_torch_version_is_said_and_recorded(tmp_path, capsys):
    out = tmp_path / "run"
    start(resolve({**TINY, "steps": 100}), out=out, quiet=True)
    origin = json.loads((out / "provenance.json").read_text())
    origin["versions"]["torch"] = "1.0"
    (out / "provenance.json").write_text(json.dumps(origin))
    resume(out, steps=200, quiet=True)
    assert "began with torch 1.0" in capsys.readouterr().err
    assert json.loads((out / "provenance.json").read_text())["resumed"][0]["step"] == 100


def test_missing_checkpoints_never_start_from_scratch(tmp_path):
    import shutil

    out = tmp_path / "run"
    start(resolve({**TINY, "steps": 100}), out=out, quiet=True)
    shutil.rmtree(out / "checkpoints")
    for name in ("resume", "verify", "digest", "eval"):
        code, _, error = command(name, out)
        assert code == 4, error
    (out / "checkpoints").mkdir()
    assert command("resume", out)[0] == 4


@pytest.mark.parametrize("fault", ["nan_obs", "nan_reward"])
def test_bad_numbers_from_an_environment_stop_the_run_and_name_it(tmp_path, fault):
    plugin = tmp_path / "faulty.py"
    plugin.write_text(FAULTY)
    config = {**{key: value for key, value in TINY.items() if not key.startswith("env")}, "steps": 10**6}
    tree = [f"--{key.replace('_', '-')}={value}" for key, value in config.items()]
    code, _, error = command(
        "train", "faulty", "--plugin", plugin, f"--env.fault={fault}", "--out", tmp_path / "run", *tree
    )
    assert code == 3
    assert "Traceback" not in error
    assert "faulty" in error
    assert "index 2" in error
    assert "step 30" in error
    assert "is intact" in error
    assert command("verify", tmp_path / "run")[0] == 0


FAULTY = '''"""An environment whose third copy breaks at its thirtieth step."""
from dataclasses import dataclass
from typing import Literal
import gymnasium as gym
import numpy as np
from intrigue.envs import Env, EnvInfo, Step, register_env

@dataclass(frozen=True)
class FaultyConfig:
    fault: Literal["nan_obs", "nan_reward"] = "nan_obs"

@register_env("faulty", config=FaultyConfig)
class Faulty(Env):
    made = 0
    def __init__(self, cfg, name):
        self.cfg, self.index, self.steps = cfg, Faulty.made, 0
        Faulty.made += 1
        self.info = EnvInfo(gym.spaces.Box(-1, 1, (2,), np.float32), gym.spaces.Discrete(2))
    def reset(self, seed):
        return np.zeros(2, np.float32)
    def step(self, action):
        self.steps += 1
        broken = self.index % 4 == 2 and self.steps == 30
        obs = np.full(2, np.nan if broken and self.cfg.fault == "nan_obs" else 0.5, np.float32)
        return Step(obs, float("nan") if broken and self.cfg.fault == "nan_reward" else 0.0, False, False)
    def snapshot(self):
        return {"steps": self.steps}
    def restore(self, state):
        self.steps = state["steps"]
'''
