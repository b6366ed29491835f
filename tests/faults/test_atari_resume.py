"""Atari under the laptop preset, killed and interrupted in the middle of rollouts, ends on the calm run's digest."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time

import pytest
from test_kill_and_resume import forked

from intrigue.config.run import resolve
from intrigue.presets import preset_layer
from intrigue.run import checkpoint
from intrigue.run.driver import resume, start

ENVS, ROLLOUT, STEPS = 2, 48, 288
# The preset's own algorithm; only its sizes are cut, so that a run takes seconds.
SHRUNK = {
    "threads": 1,
    "steps": STEPS,  # three rollouts of 96 steps, the first of them random
    "checkpoint_every": 28,  # no divisor of 96: checkpoints fall in the middle of rollouts
    "env.max_episode_steps": 30,  # several games end and begin
    "pool.num_envs": ENVS,
    "agent.rollout_steps": ROLLOUT,
    "agent.minibatches": 2,
    "agent.features": 16,
    "curiosity.minibatches": 2,
    "curiosity.warmup_steps": 60,
    "reward.feature_dim": 16,
    "reward.hidden": 16,
    "reward.blocks": 1,
}
SECONDS = 60.0  # a run takes a few; beyond this it hangs


def configured(**changes):
    return resolve(preset_layer("nnm-atari-small"), SHRUNK, changes)


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The run that nobody disturbs."""
    return start(configured(), out=tmp_path_factory.mktemp("calm") / "run", quiet=True)


def launched(tmp_path, out, workers):
    """The run begun, or gone on with, in a process of its own."""
    if out.exists():
        return forked(["resume", str(out), "--quiet"])
    file = tmp_path / "config.json"
    file.write_text(json.dumps(configured(**{"pool.workers": workers}).to_json()))
    return forked(["train", "--config", str(file), "--out", str(out), "--quiet"])


def newest_step(out):
    """The step of the newest checkpoint that is published; -1 before the first."""
    if not (out / "checkpoints").exists():
        return -1
    verdict = checkpoint.verify(out / "checkpoints")
    assert verdict.ok, verdict.problems
    return verdict.step


def wait_for(process, out, step):
    """Until a checkpoint of at least that step is published or the process has ended."""
    limit = time.monotonic() + SECONDS
    while process.is_alive() and newest_step(out) < step:
        assert time.monotonic() < limit, f"no checkpoint of step {step}"
        time.sleep(0.005)


def children_of(process):
    done = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True, check=False)
    return done.stdout.split()


def rows_under_way(out):
    """How many steps of a rollout the newest checkpoint holds."""
    return int(checkpoint.load(out / "checkpoints", on_skip=pytest.fail).state["collector"]["cursor"])


def test_the_calm_run_plays_games_and_learns(calm):
    assert len(calm.episodes()["step"]) == STEPS // ENVS // 30 * ENVS
    learned = [loss for loss in calm.metrics()["losses/intrinsic"] if loss == loss]
    assert len(learned) == 2, "all rollouts but the random one"


def test_kills_at_any_moment_lose_nothing(tmp_path, calm):
    """Kill -9 in the birth of the run, in the random rollout, in later ones, in the middle of saving or not.

    The emulators are in the process itself, which is begun five times: results do not depend on the workers.
    """
    rng, out, cut_short = random.Random(0), tmp_path / "run", 0
    for step in (-1, 0, 28, 112, 224):
        process = launched(tmp_path, out, workers=0)
        wait_for(process, out, step)
        time.sleep(rng.uniform(0.0, 0.05))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL, "the run ended before it was killed"
        if out.exists():
            assert newest_step(out) >= step
            cut_short += rows_under_way(out) > 0
    assert cut_short >= 2, "no kill left a half-filled rollout behind"
    assert not (out / "DONE").exists()
    assert resume(out, quiet=True).digest() == calm.digest()


def test_a_signal_in_the_middle_of_a_rollout_saves_it(tmp_path, calm):
    """SIGTERM saves the rows gathered so far, ends the emulators, and the run goes on as if nothing had been."""
    out, held = tmp_path / "run", 0
    for step in (28, 196):
        process = launched(tmp_path, out, workers=2)
        wait_for(process, out, step)
        workers = children_of(process)
        assert len(workers) == 2
        os.kill(process.pid, signal.SIGTERM)
        process.join(SECONDS)
        assert process.exitcode == 128 + signal.SIGTERM
        assert not any(os.path.exists(f"/proc/{pid}") for pid in workers), "an emulator's process was left behind"
        held += rows_under_way(out) > 0
    assert held >= 1, "every signal happened to meet the end of a rollout"
    assert resume(out, quiet=True).digest() == calm.digest()


def test_stopping_inside_a_rollout(tmp_path, calm):
    """In the random rollout, one step into learning, in the middle of the last."""
    for steps in (50, 98, 250):
        out = tmp_path / str(steps)
        start(configured(steps=steps, **{"pool.workers": 0}), out=out, quiet=True)
        assert rows_under_way(out) == steps // ENVS % ROLLOUT
        assert resume(out, steps=STEPS, quiet=True).digest() == calm.digest(), f"stopped at {steps}"
