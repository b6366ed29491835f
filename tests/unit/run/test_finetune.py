"""Fine-tuning: what is copied and what is fresh, which skill is followed, and every way a snapshot can be wrong."""

from __future__ import annotations

import csv
import json
import shutil

import pytest
import torch

from conftest import same_state
from finetune_runs import pretrained
from intrigue.cli import main
from intrigue.config.run import flatten_json, resolve
from intrigue.errors import ConfigError
from intrigue.run import checkpoint
from intrigue.run.checkpoint import snapshot
from intrigue.run.driver import resume
from intrigue.run.finetune import finetune
from intrigue.run.folder import RunFolder, read_config, read_provenance
from intrigue.scores.normalized import EXPERTS
from intrigue.training.build import build

SHORT = {"steps": 40, "device": "cpu", "quiet": True}


@pytest.fixture(scope="module")
def walker(tmp_path_factory):
    """The folder of a pre-training that nothing in this file writes to."""
    return pretrained(tmp_path_factory.mktemp("pre") / "walker").path


def first_state(run):
    """The agent and reward as a fine-tuning begins with them."""
    first = checkpoint.list_checkpoints(run / "checkpoints")[0]
    assert checkpoint.step_and_generation(first)[0] == 0
    return checkpoint.examine(first, keep=True)[0].state


def begun(folder, tmp_path, task="walker_run"):
    """The state before the first step of a fine-tuning, that of an agent nobody taught, and the snapshot."""
    (done,) = finetune(folder, task, out=tmp_path / "tuned", **SHORT)
    cfg = resolve(flatten_json(read_config(RunFolder(done.run.path))))
    fresh = build(cfg)
    try:
        fresh.collector.start()
        untaught = fresh.state_dict()
    finally:
        fresh.close()
    return first_state(done.run.path), untaught, snapshot.load(RunFolder(folder), None)


def without_explorer(now):
    """All weights but those that explore under `overlap`, which are the actor's from the first step on."""
    explores = {name: weight for name, weight in now.items() if name.startswith("behaviour.")}
    assert explores
    for name, weight in explores.items():
        assert torch.equal(weight, now[name.replace("behaviour.", "actor.")]), name
    return {name: weight for name, weight in now.items() if name not in explores}


def test_exactly_the_actor_and_the_critics_trunk_are_copied(walker, tmp_path):
    state, untaught, given = begun(walker, tmp_path)
    now, fresh = state["agent"]["modules"], untaught["agent"]["modules"]
    for name, weight in without_explorer(now).items():
        copied = name.startswith(("actor.", "critic.trunk."))
        assert torch.equal(weight, given.agent[name] if copied else fresh[name]), name
        if copied and name.endswith("weight"):
            assert not torch.equal(weight, fresh[name]), f"{name} was never trained, so the test shows nothing"
    assert any(name.startswith("critic.hidden.") for name in now)
    # The target is the copy of the critic as it was before: its trunk is not the copied one.
    assert not torch.equal(now["target.trunk.0.weight"], now["critic.trunk.0.weight"])
    for name in ("actor_optimizer", "critic_optimizer"):
        assert state["agent"][name]["state"] == {}, "optimisers begin anew"
    assert same_state(state["curiosity"], untaught["curiosity"]), "nothing of the bonus is copied"
    assert int(state["collector"]["replay"]["keep"]["steps"]) == 0
    told = read_provenance(RunFolder(tmp_path / "tuned"))["finetuned_from"]
    assert (told["run"], told["snapshot"], told["digest"]) == ("walker", 60, given.digest)
    assert told["copied"] == {"agent": sorted(n for n in now if n.startswith(("actor.", "critic.trunk.")))}


def test_proto_copies_the_whole_critic(tmp_path):
    folder = pretrained(tmp_path / "proto", "proto-urlb").path
    state, untaught, given = begun(folder, tmp_path)
    for name, weight in without_explorer(state["agent"]["modules"]).items():
        copied = name.startswith(("actor.", "critic."))
        assert torch.equal(weight, (given.agent if copied else untaught["agent"]["modules"])[name]), name


def test_aps_keeps_the_features_tasks_are_regressed_on(tmp_path):
    folder = pretrained(tmp_path / "aps", "aps-urlb").path
    state, _, given = begun(folder, tmp_path)
    now = {name.removeprefix("reward."): weight for name, weight in state["curiosity"]["modules"].items()}
    trained = [name for name in given.reward if name.startswith("features.")]
    assert trained and all(torch.equal(now[name], given.reward[name]) for name in trained)
    assert state["agent"]["modules"]["critic.out.weight"].shape == (2, 8, 10), "successor features of ten numbers"


def test_the_settings_of_the_task(walker, tmp_path):
    (done,) = finetune(walker, "walker_flip", mark=30, seed=5, out=tmp_path / "tuned", **SHORT)
    cfg, before = done.run.config, resolve(flatten_json(read_config(RunFolder(walker))))
    assert (cfg.env_id, cfg.run.seed, cfg.run.steps, done.mark) == ("dmc/walker_flip", 5, 40, 30)
    assert cfg.env_options == before.env_options
    assert {**cfg.agent_options, "n_step": 1} == {**before.agent_options, "n_step": 1}
    assert (before.agent_options["n_step"], cfg.agent_options["n_step"]) == (1, 3)
    assert (cfg.curiosity.int_coef, cfg.curiosity.ext_coef, cfg.curiosity.idle) == (0.0, 1.0, True)
    assert (cfg.run.snapshots, cfg.run.eval_every, cfg.run.eval_episodes) == ((), 10_000, 10)
    metrics = done.run.metrics()
    assert set(metrics["intrinsic/raw_max"][1:]) == {0.0}, "no bonus is computed"


def test_only_the_tasks_reward_is_learned_from(walker, tmp_path):
    """The critic's target is the task's reward: rewards of the replay reach it undiminished."""
    (done,) = finetune(walker, "walker_stand", out=tmp_path / "tuned", **SHORT)
    parts = build(done.run.config)
    try:
        parts.load_state_dict(checkpoint.load(done.run.path / "checkpoints", on_skip=pytest.fail).state)
        sample = parts.collector.replay.sample(40)
        given = parts.curiosity.step_batch(sample.batch)
        torch.testing.assert_close(given.streams[0].reward, sample.batch.reward)
        assert (sample.batch.reward > 0).any()
    finally:
        parts.close()


def test_the_score_is_the_last_row_of_eval_csv(walker, tmp_path, capsys):
    out = tmp_path / "tuned"
    options = ["--task", "walker_run", "--steps", "40", "--device", "cpu", "--out", str(out), "--quiet"]
    assert main(["finetune", str(walker), *options, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    rows = (out / "eval.csv").read_text().splitlines()
    last = dict(zip(rows[0].split(","), rows[-1].split(","), strict=True))
    assert float(last["eval/return_mean"]) == told["return_mean"]
    assert float(last["eval/normalized"]) == told["normalized"] == told["return_mean"] / 796
    assert (told["task"], told["snapshot"], told["step"], told["episodes"]) == ("dmc/walker_run", 60, 40, 10)
    assert int(last["step"]) == 40


def test_evaluations_as_often_as_asked_and_after_the_last_step(walker, tmp_path, capsys):
    options = ["--task", "walker_run", "--steps", "50", "--device", "cpu", "--quiet", "--json"]
    found = []
    for every, steps in ((20, [20, 40, 50]), (10_000, [50])):
        out = tmp_path / str(every)
        assert main(["finetune", str(walker), *options, "--eval-every", str(every), "--out", str(out)]) == 0
        told = json.loads(capsys.readouterr().out)
        with (out / "eval.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert [int(row["step"]) for row in rows] == steps
        assert read_config(RunFolder(out))["run"]["eval_every"] == every
        found.append(told["return_mean"])
    assert found[0] == found[1], "looking more often leaves no trace in what is learned"
    with pytest.raises(ConfigError, match="--eval-every: 0 is out of range"):
        finetune(walker, "walker_run", eval_every=0, out=tmp_path / "never", **SHORT)
    assert not (tmp_path / "never").exists()


def test_text_names_run_and_share_of_the_expert(walker, tmp_path, capsys, monkeypatch):
    copy = tmp_path / "walker"
    shutil.copytree(walker, copy)
    monkeypatch.chdir(tmp_path)
    assert main(["finetune", "walker", "--task", "walker_run", "--steps", "30", "--device", "cpu", "--quiet"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("walker__walker_run__60__0\ndmc/walker_run after 30 steps from snapshot 60: return ")
    assert "over 10 episodes" in told and "of the expert's 796" in told


def test_a_stopped_fine_tuning_goes_on_to_the_same_bits(walker, tmp_path):
    calm = finetune(walker, "walker_run", out=tmp_path / "calm", **{**SHORT, "steps": 50})[0].run
    finetune(walker, "walker_run", out=tmp_path / "stopped", **{**SHORT, "steps": 31})
    gone_on = resume(tmp_path / "stopped", steps=50, quiet=True)
    assert gone_on.digest() == calm.digest()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--task", "quadruped_run"], "is not of the domain that was trained in, 'walker'"),
        (["--task", "walker"], "has no reward"),
        (["--task", "walker_rnu"], "Did you mean 'dmc/walker_run'"),
        (["--task", "walker_run", "--snapshot", "31"], "There are: 30, 60"),
        (["--task", "walker_run", "--steps", "0"], "--steps: 0 is out of range"),
        (["--task", "walker_run", "--eval-every", "0"], "--eval-every: 0 is out of range"),
        (["--task", "gym/Pendulum-v1"], "was trained for other sizes"),
    ],
)
def test_a_task_or_snapshot_that_does_not_fit_is_refused(walker, tmp_path, capsys, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    assert main(["finetune", str(walker), *options, "--out", "tuned", "--quiet", "--device", "cpu"]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [], "nothing was created"


def test_a_missing_run_or_one_without_snapshots_is_refused(walker, tmp_path, capsys):
    assert main(["finetune", str(tmp_path / "nowhere"), "--task", "walker_run"]) == 2
    bare = tmp_path / "bare"
    shutil.copytree(walker, bare)
    shutil.rmtree(bare / "snapshots")
    assert main(["finetune", str(bare), "--task", "walker_run", "--out", str(tmp_path / "tuned")]) == 2
    assert "holds no snapshot to fine-tune from" in capsys.readouterr().err
    assert not (tmp_path / "tuned").exists()


def test_an_agent_of_another_kind_is_refused(tmp_path, capsys):
    from conftest import TINY
    from intrigue.run.driver import start

    start(resolve({**TINY, "steps": 128, "run.snapshots": "64"}), out=tmp_path / "ppo", quiet=True)
    assert main(["finetune", str(tmp_path / "ppo"), "--task", "rooms", "--out", str(tmp_path / "tuned")]) == 2
    assert "its agent 'ppo' cannot be fine-tuned" in capsys.readouterr().err
    assert not (tmp_path / "tuned").exists()


@pytest.mark.parametrize("member", ["tensors.safetensors", "state.json", "manifest.json"])
def test_a_damaged_snapshot_is_named_and_nothing_begins(walker, tmp_path, capsys, member):
    copy = tmp_path / "walker"
    shutil.copytree(walker, copy)
    file = copy / "snapshots" / f"{60:012d}" / member
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    options = ["--task", "walker_run", "--out", str(tmp_path / "tuned"), "--quiet"]
    assert main(["finetune", str(copy), *options]) == 4
    told = capsys.readouterr().err
    assert f"snapshots/{60:012d} is damaged" in told and member in told
    assert not (tmp_path / "tuned").exists()
    assert main(["verify", str(copy)]) == 4
    assert f"snapshots/{60:012d}" in capsys.readouterr().err
    assert main(["finetune", str(copy), *options, "--snapshot", "30", "--steps", "20", "--device", "cpu"]) == 0


def test_a_snapshot_of_another_size_is_refused(walker, tmp_path, capsys):
    wide = pretrained(tmp_path / "wide", **{"agent.hidden": 10, "steps": 30, "run.snapshots": "30"}).path
    copy = tmp_path / "walker"
    shutil.copytree(walker, copy)
    shutil.rmtree(copy / "snapshots")
    shutil.copytree(wide / "snapshots", copy / "snapshots")
    options = ["--task", "walker_run", "--out", str(tmp_path / "tuned"), "--quiet"]
    assert main(["finetune", str(copy), *options]) == 4
    assert "was taken of another agent" in capsys.readouterr().err
    assert not (tmp_path / "tuned").exists()


def test_weights_of_other_shapes_never_pass_unseen(walker, tmp_path):
    """Also where a snapshot's own description hides it."""
    from dataclasses import replace

    from intrigue.run.finetune import configure, copy_from_snapshot

    run = RunFolder(walker)
    given = snapshot.load(run, 60)
    parts = build(configure(given, run, "walker_run", {"device": "cpu"}))
    name = "critic.trunk.0.weight"
    try:
        for weights in (
            {**given.agent, name: given.agent[name].T},
            {k: v for k, v in given.agent.items() if k != name},
        ):
            with pytest.raises(ConfigError, match=f"does not fit: {name} is (30x8|missing), expected 8x30"):
                copy_from_snapshot(replace(given, agent=weights), parts, "walker")
    finally:
        parts.close()


def test_the_experts_are_those_of_the_twelve_tasks():
    from intrigue.envs.dmc.names import URLB_TASKS

    assert set(EXPERTS) == {f"{domain}_{task}" for domain, tasks in URLB_TASKS.items() for task in tasks}
    by_domain = {domain: sum(EXPERTS[f"{domain}_{task}"] for task in tasks) for domain, tasks in URLB_TASKS.items()}
    assert by_domain == {"walker": 3550, "quadruped": 3562, "jaco": 810}
