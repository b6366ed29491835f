"""A pre-training of `nnm-urlb-small`, killed and stopped wherever it hurts, ends on the calm run's digest.

Replay, snapshots and evaluations included.
"""

from __future__ import annotations

import json
import random
import signal
import time

import pytest
from test_kill_and_resume import forked

from intrigue.config.run import resolve
from intrigue.ops.precision import fast_float32, uses_bfloat16
from intrigue.presets import preset_layer
from intrigue.run import build as run_build
from intrigue.run import checkpoint
from intrigue.run.checkpoint import snapshot
from intrigue.run.driver import resume, start
from intrigue.run.folder import RunFolder
from run_ends import kept, told

KILLS = (3, pytest.param(6, marks=pytest.mark.slow))
STEPS = 160
MARKS = (50, 120)
SHRUNK = {
    "env.max_episode_steps": 15,
    "threads": 1,
    "steps": STEPS,
    "checkpoint_every": 30,
    "run.snapshots": MARKS,
    "run.eval_every": 60,
    "run.eval_episodes": 2,
    "agent.capacity": 96,  # the ring comes round
    "agent.batch": 16,
    "agent.hidden": 16,
    "agent.learning_starts": 20,
    "agent.rollout_steps": 10,
    "reward.feature_dim": 8,
    "reward.hidden": 8,
}


def shrunk(**changes):
    return resolve(preset_layer("nnm-urlb-small"), {**SHRUNK, **changes})


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The run that nobody disturbs."""
    return start(shrunk(), out=tmp_path_factory.mktemp("calm") / "run", quiet=True)


def same_end(run, calm):
    assert run.digest() == calm.digest()
    assert kept(run.path) == kept(calm.path)
    assert told(run.evaluations()) == told(calm.evaluations())
    assert told(run.metrics()) == told(calm.metrics())
    assert run.episodes() == calm.episodes()


def test_the_calm_run_kept_what_was_asked_for(calm):
    assert list(kept(calm.path)) == [*MARKS]
    assert calm.evaluations()["step"] == [60, 120, STEPS]
    assert len(checkpoint.list_checkpoints(calm.path / "checkpoints")) == 2, (
        "snapshots are not counted among the checkpoints"
    )
    held = snapshot.load(RunFolder(calm.path), MARKS[0])
    assert held.about["step"] == MARKS[0]
    names = {path.name for path in held.path.iterdir()}
    assert names == {"tensors.safetensors", "state.json", "manifest.json"}, "no replay beside the weights"


@pytest.mark.parametrize("steps", [7, 50, 61, 119])
def test_stopping_points_resume_to_the_same_digest(tmp_path, calm, steps):
    start(shrunk(steps=steps, **{"run.eval_every": 0}), out=tmp_path / "run", quiet=True)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["run"]["eval_every"] = 60  # a setting of book-keeping; a run that ends evaluates once more
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    run = resume(tmp_path / "run", steps=STEPS, quiet=True)
    assert run.digest() == calm.digest()
    assert kept(run.path) == kept(calm.path)
    wanted = [step for step in (60, 120, STEPS) if step > steps]
    assert run.evaluations()["step"] == wanted
    assert run.evaluations()["eval/return_mean"] == calm.evaluations()["eval/return_mean"][-len(wanted) :]


@pytest.mark.parametrize("wanted", KILLS)
def test_kills_lose_nothing(tmp_path, calm, wanted):
    """Commands are killed -9 at random moments; the folder is whole every time, and ends where the calm run ended."""
    rng = random.Random(0)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(shrunk().to_json()))
    out, kills, finished = tmp_path / "0", 0, 0
    began = time.perf_counter()
    forked(["train", "--config", str(config), "--out", str(tmp_path / "whole"), "--quiet"]).join()
    whole = time.perf_counter() - began  # a run takes a second on one machine and four on another
    while kills < wanted:
        begin = ["train", "--config", str(config), "--out", str(out), "--quiet"]
        process = forked(["resume", str(out), "--quiet"] if out.exists() else begin)
        process.join(timeout=rng.uniform(0.1, 0.5) * whole)
        process.kill()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
        kills += process.exitcode != 0
        if out.exists():
            assert checkpoint.verify(out / "checkpoints").ok
            assert snapshot.find_problems(RunFolder(out)) == []
        if (out / "DONE").exists():
            same_end(resume(out, quiet=True), calm)
            finished += 1
            out = tmp_path / str(finished)
    same_end(resume(out, quiet=True) if out.exists() else start(shrunk(), out=out, quiet=True), calm)


def test_products_of_bfloat16_are_taken_up_to_the_same_digest(tmp_path, calm, monkeypatch):
    # Also where the processor has no fast instructions for it.
    monkeypatch.setattr(run_build, "resolve_matmul_dtype", lambda wanted, device: wanted)
    rough = {"run.products": "bfloat16"}
    start(shrunk(steps=75, **rough), out=tmp_path / "broken", quiet=True)
    with fast_float32():
        assert not uses_bfloat16(), "only while the run trains"
    resumed = resume(tmp_path / "broken", steps=STEPS, quiet=True)
    assert resumed.digest() == start(shrunk(**rough), out=tmp_path / "calm", quiet=True).digest()
    assert resumed.metrics()["losses/critic_loss"] != calm.metrics()["losses/critic_loss"]


@pytest.mark.parametrize("damaged", [True, False])
def test_a_mark_that_is_passed_again_leaves_a_whole_snapshot_alone_and_mends_a_damaged_one(tmp_path, calm, damaged):
    out = tmp_path / "run"
    start(shrunk(steps=55), out=out, quiet=True)
    newest = checkpoint.list_checkpoints(out / "checkpoints")[-1] / "state.json"
    newest.write_bytes(newest.read_bytes()[:-1])  # so that the run is taken up from step 30
    held = snapshot.load(RunFolder(out), 50).path / "tensors.safetensors"
    before = held.stat()
    if damaged:
        held.write_bytes(held.read_bytes()[:-1] + b"?")
    run = resume(out, steps=STEPS, quiet=True)
    assert kept(run.path) == kept(calm.path)
    assert run.digest() == calm.digest()
    assert (held.stat().st_ino == before.st_ino) == (not damaged)
