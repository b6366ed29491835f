"""Runs with a replay that are killed or damaged end on the calm run's digest, the replay included."""

from __future__ import annotations

import json
import random
import signal

import pytest
import torch
from test_kill_and_resume import command, forked

from conftest import TINY
from intrigue.config.run import resolve
from intrigue.run import checkpoint
from intrigue.run.driver import resume, start
from intrigue.run.logging.csv_files import read_metrics

KILLS = (6, pytest.param(20, marks=pytest.mark.slow))
STEPS = 660
# The ring comes round twice; every checkpoint finds chunks it knows, new ones, and some that are gone.
REPLAY = {
    **{key: value for key, value in TINY.items() if not key.startswith("reward.")},
    "agent": "dqn",
    "agent.capacity": 256,
    "agent.batch": 8,
    "agent.learning_starts": 60,
    "agent.n_step": 2,
    "agent.target_every": 100,
    "agent.epsilon_steps": 400,
    "agent.priority": 0.6,
    "reward": "rnd",
    "reward.feature_dim": 8,
    "reward.hidden": 8,
    "steps": STEPS,
    "checkpoint_every": 150,
}


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The run that nobody disturbs."""
    return start(resolve(REPLAY), out=tmp_path_factory.mktemp("calm") / "run", quiet=True)


@pytest.mark.parametrize("wanted", KILLS)
def test_kills_lose_nothing(tmp_path, calm, wanted):
    """Commands are killed -9 at random moments; the folder is whole every time, and ends where the calm run ended."""
    rng = random.Random(0)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(resolve(REPLAY).to_json()))
    out, kills, finished = tmp_path / "run-0", 0, 0
    while kills < wanted:
        begin = ["train", "--config", str(config), "--out", str(out), "--quiet"]
        process = forked(["resume", str(out), "--quiet"] if out.exists() else begin)
        process.join(timeout=rng.uniform(0, 1.2))
        process.kill()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
        kills += process.exitcode != 0
        if out.exists():
            verdict = checkpoint.verify(out / "checkpoints")
            assert verdict.ok, verdict.problems
        if (out / "DONE").exists():
            assert checkpoint.digest(out / "checkpoints") == calm.digest()
            finished += 1
            out = tmp_path / f"run-{finished}"
    if out.exists():
        assert resume(out, quiet=True).digest() == calm.digest()


@pytest.mark.parametrize("steps", [4, 60, 64, 250, 604])
def test_stopping_points_resume_to_the_same_digest(tmp_path, calm, steps):
    """Also with other checkpoints on the way: the digest does not tell when chunks were written."""
    out = tmp_path / "run"
    start(resolve({**REPLAY, "steps": steps, "checkpoint_every": 10**9}), out=out, quiet=True)
    run = resume(out, steps=STEPS, quiet=True)
    assert run.digest() == calm.digest()
    clock = ("wall_seconds", "charts/SPS", "time/collect_fraction", "time/curiosity_fraction")
    for name, column in calm.metrics().items():
        if name not in clock:
            assert [repr(x) for x in column] == [repr(x) for x in run.metrics()[name]], name
    assert calm.episodes() == run.episodes()


def test_only_the_rows_since_the_last_checkpoint_are_written(calm):
    """Of 256 to 320 rows that are kept, a checkpoint itself holds less than two chunks of 64."""
    folder = calm.path / "checkpoints"
    newest = checkpoint.load(folder, on_skip=pytest.fail)
    kept = newest.state["collector"]["replay"]["keep"]
    loose = sum(len(rows["back"]) for rows in kept["rest"])
    assert loose < 2 * 64
    assert 256 <= loose + 64 * len(kept["chunks"]) <= 320
    referred = {each.stored.name for each in kept["chunks"]}
    older = checkpoint.examine(checkpoint.list_checkpoints(folder)[-2], keep=True)[0]
    before = {each.stored.name for each in older.state["collector"]["replay"]["keep"]["chunks"]}
    assert referred & before, "chunks are shared"
    assert {path.name for path in (folder / "chunks").iterdir()} == referred | before


def test_a_damaged_chunk_is_named_and_resume_falls_back_to_the_same_end(tmp_path, calm, capsys):
    out = tmp_path / "run"
    start(resolve({**REPLAY, "steps": 600}), out=out, quiet=True)
    newest = max((out / "checkpoints" / "chunks").iterdir())
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    code, _, error = command("verify", out)
    assert code == 4
    assert f"chunks/{newest.name}" in error
    run = resume(out, steps=STEPS, quiet=True)
    assert "is damaged and was passed over" in capsys.readouterr().err
    assert run.digest() == calm.digest()
    assert command("verify", out)[0] == 0
    steps = read_metrics(out / "metrics.csv").columns["step"]
    assert steps == sorted(set(steps))


def test_environments_that_cannot_be_saved_begin_anew_and_the_replay_goes_on(tmp_path, capsys):
    layer = {key: value for key, value in REPLAY.items() if not key.startswith("env")}
    out = tmp_path / "run"
    start(resolve({**layer, "env": "gym/CartPole-v1", "steps": 300}), out=out, quiet=True)
    before = checkpoint.load(out / "checkpoints", on_skip=pytest.fail).state["collector"]["replay"]["keep"]
    run = resume(out, steps=500, quiet=True)
    assert "begin anew" in capsys.readouterr().err
    kept = checkpoint.load(run.path / "checkpoints", on_skip=pytest.fail).state["collector"]["replay"]["keep"]
    assert int(kept["steps"]) == int(before["steps"]) + 50
    rows = torch.cat([each["end"] for each in [*(chunk.load() for chunk in kept["chunks"]), *kept["rest"]]])
    assert rows.any()
