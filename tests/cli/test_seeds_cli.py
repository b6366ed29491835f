"""`--seeds` as a user types it: folders, messages, and settings whose seeds run one after another."""

from __future__ import annotations

import json

import pytest

from conftest import TINY
from intrigue.cli import main
from intrigue.run.checkpoint import digest

SHORT = {**TINY, "steps": 96, "checkpoint_every": 32}


def tiny(**changes):
    return [f"--{key.replace('_', '-')}={value}" for key, value in {**SHORT, **changes}.items()]


@pytest.fixture
def intrigue(tmp_path, monkeypatch, capsys):
    """Runs a command in a folder of its own; (what it printed, what it said)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments, code=0):
        capsys.readouterr()
        assert main([*map(str, arguments)]) == code
        return capsys.readouterr()

    return run


def test_seeds_that_cannot_step_together_run_one_after_another(intrigue, tmp_path):
    out, said = intrigue("train", *tiny(), "--seeds", "1,4")
    place = tmp_path / out.strip()
    assert out.strip() == "runs/rooms__nnmc__ppo__seeds-1_4__1"
    reason = "these 2 seeds are trained one after another: 'ppo' learns from its rollouts"
    assert said.count(reason) == 1
    assert said.index("seed 1, 1 of 2") < said.index("seed 4, 2 of 2")
    for seed in (1, 4):
        intrigue("train", *tiny(seed=seed), "--out", f"lone-{seed}", "--quiet")
        assert digest(place / f"seed-{seed}" / "checkpoints") == digest(tmp_path / f"lone-{seed}" / "checkpoints")
        config = json.loads((place / f"seed-{seed}" / "config.json").read_text())
        assert config == json.loads((tmp_path / f"lone-{seed}" / "config.json").read_text())
        assert config["run"]["seed"] == seed
    out, said = intrigue("resume", place, "--steps", 128, "--quiet")
    assert out.splitlines() == [f"{place.relative_to(tmp_path)}/seed-{seed} is at step 128 of 128" for seed in (1, 4)]
    assert said == ""
    intrigue("resume", "lone-4", "--steps", 128, "--quiet")
    assert digest(place / "seed-4" / "checkpoints") == digest(tmp_path / "lone-4" / "checkpoints")
    for command in (["verify"], ["digest"], ["eval", "--episodes", "1"], ["resume"]):
        intrigue(command[0], place / "seed-4", *command[1:])


def test_environments_that_cannot_be_saved_begin_as_they_do_alone(intrigue, tmp_path):
    """Runs that wait for their turn are closed after their first checkpoint and begin again, not anew."""
    fields = {key: value for key, value in SHORT.items() if not key.startswith(("env", "reward."))}
    arguments = [f"--{key.replace('_', '-')}={value}" for key, value in fields.items()]
    _, said = intrigue("train", "gym/CartPole-v1", "--reward=none", *arguments, "--seeds", "0:2", "--out", "all")
    assert "begin anew" not in said
    intrigue("train", "gym/CartPole-v1", "--reward=none", *arguments, "--seed", 1, "--out", "lone", "--quiet")
    assert digest(tmp_path / "all" / "seed-1" / "checkpoints") == digest(tmp_path / "lone" / "checkpoints")
    assert "resumed" not in json.loads((tmp_path / "all" / "seed-1" / "provenance.json").read_text())


def test_seeds_whose_settings_differ_run_one_after_another(intrigue, tmp_path):
    intrigue("train", *tiny(steps=32), "--seeds", "0:2", "--out", "all", "--quiet")
    path = tmp_path / "all" / "seed-1" / "config.json"
    config = json.loads(path.read_text())
    config["run"]["keep"] = 1
    path.write_text(json.dumps(config))
    out, said = intrigue("resume", "all", "--steps", 96)
    assert said.count("one after another: their settings differ in more than seeds") == 1
    assert out.count("is at step 96 of 96") == 2


def test_a_folder_of_seeds_is_not_trained_into_and_a_missing_one_is_named(intrigue, tmp_path):
    intrigue("train", *tiny(steps=16), "--seeds", "0:2", "--out", "all", "--quiet")
    _, said = intrigue("train", *tiny(), "--seeds", "0:2", "--out", "all", code=2)
    assert f"already holds runs of several seeds; go on with `intrigue resume {tmp_path / 'all'}`" in said
    _, said = intrigue("train", *tiny(), "--seeds", "0:2", "--out", "all/seed-0", code=2)
    assert "already holds a finished run" in said
    _, said = intrigue("train", *tiny(), "--out", "all", code=2)
    assert f"already holds runs of several seeds; go on with `intrigue resume {tmp_path / 'all'}`" in said
    assert "holds the runs of several seeds; give one of them: all/seed-0" in intrigue("eval", "all", code=2)[1]
    for each in (tmp_path / "all" / "seed-1" / "checkpoints").iterdir():
        each.rename(tmp_path / f"moved-{each.name}")
    _, said = intrigue("resume", "all", code=4)
    assert "seed-1 holds no checkpoints" in said


def test_verify_and_digest_look_at_every_seed(intrigue, tmp_path):
    intrigue("train", *tiny(steps=16), "--seeds", "0:2", "--out", "all", "--quiet")
    out, _ = intrigue("verify", "all")
    assert [line.split(":")[0] for line in out.splitlines()] == ["all/seed-0", "all/seed-1"]
    out, _ = intrigue("digest", "all")
    alone = [intrigue("digest", f"all/seed-{seed}")[0].strip() for seed in (0, 1)]
    assert out.splitlines() == [f"{alone[seed]}  all/seed-{seed}" for seed in (0, 1)]
    newest = max((tmp_path / "all" / "seed-1" / "checkpoints").iterdir())
    tensors = newest / "tensors.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-1])
    out, said = intrigue("verify", "all", code=4)
    assert out.startswith("all/seed-0: the checkpoint of step") and "seed-1" not in out
    assert "all/seed-1: " in said and "all/seed-0" not in said
    found = json.loads(intrigue("verify", "all", "--json", code=4)[0])
    assert found["ok"] is False and [each["ok"] for each in found["runs"]] == [True, False]
    assert [each["run"] for each in found["runs"]] == ["all/seed-0", "all/seed-1"]
    (tmp_path / "all" / "seed-0" / "checkpoints").rename(tmp_path / "moved")
    found = json.loads(intrigue("verify", "all", "--json", code=4)[0])
    assert "holds no checkpoints" in found["runs"][0]["problems"][0] and found["runs"][1]["problems"]


def test_every_problem_is_said_before_anything_is_made(intrigue, tmp_path):
    _, said = intrigue("train", "romms", "--seeds", "3:3", "--seed", 1, code=2)
    assert "error: 3 problems" in said
    assert "'3:3' holds no seed" in said and "cannot be combined with --seed" in said and "'romms'" in said
    assert "cannot be combined with" in intrigue("train", "--seeds", "0:2", "--run.seed", 1, code=2)[1]
    assert "needs a value" in intrigue("train", "--seeds", code=2)[1]
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_shows_the_first_seed(intrigue):
    assert json.loads(intrigue("train", "--seeds", "5,3", "--dry-run")[0])["run"]["seed"] == 3
