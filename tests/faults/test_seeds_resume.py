"""Several seeds at once, killed, stopped or damaged, end as if nobody had disturbed them.

Together from the start and together again: the same bits. A seed by itself, or in another company for some steps: the
same up to the order of floating-point sums.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import threading
import time

import pytest
import torch
from test_kill_and_resume import forked

from intrigue.config.run import resolve
from intrigue.errors import ConfigError, Interrupted
from intrigue.presets import preset_layer
from intrigue.run import checkpoint
from intrigue.run.checkpoint import snapshot
from intrigue.run.driver import SeedRun, resume_seeds, start, start_seeds
from intrigue.run.folder import RunFolder
from intrigue.run.lock import RunLock
from intrigue.seeding import derive_seed
from run_ends import CLOCK, kept, told

SEEDS = (0, 1, 2)
STEPS = 120
KILLS = 3
SHRUNK = {
    "env": "dmc/pendulum_swingup",
    "env.max_episode_steps": 15,
    "threads": 1,
    "device": "cpu",
    "steps": STEPS,
    "checkpoint_every": 30,
    "run.snapshots": (45,),
    "run.eval_every": 60,
    "run.eval_episodes": 1,
    "agent.capacity": 96,  # the ring comes round
    "agent.batch": 16,
    "agent.hidden": 16,
    "agent.learning_starts": 20,
    "agent.train_every": 8,
    "agent.rollout_steps": 10,
    "reward.feature_dim": 8,
    "reward.hidden": 8,
}


def shrunk(**changes):
    return resolve(preset_layer("nnm-urlb-small"), {**SHRUNK, **changes})


def plans(**changes):
    return [SeedRun(shrunk(seed=seed, **changes)) for seed in SEEDS]


def same_end(runs, calm):
    """To the bit."""
    for run, undisturbed in zip(runs, calm, strict=True):
        assert run.config == undisturbed.config
        assert run.digest() == undisturbed.digest(), f"seed {run.config.run.seed}"
        assert kept(run.path) == kept(undisturbed.path)
        assert told(run.metrics()) == told(undisturbed.metrics())
        assert run.episodes() == undisturbed.episodes()
        assert (run.path / "DONE").read_bytes() == (undisturbed.path / "DONE").read_bytes()


def near_end(runs, calm):
    """Up to rounding: some 1e-6 of a figure after so few updates, where another seed's differ in the first digit."""
    for run, undisturbed in zip(runs, calm, strict=True):
        assert run.config.with_run(keep=1, eval_every=0) == undisturbed.config.with_run(keep=1, eval_every=0)
        for mine, wanted in ((run.metrics(), undisturbed.metrics()), (run.episodes(), undisturbed.episodes())):
            assert set(mine) == set(wanted)
            for name in set(wanted) - set(CLOCK):
                assert mine[name] == pytest.approx(wanted[name], rel=1e-4, abs=1e-6, nan_ok=True), name
        folders = [RunFolder(each.path) for each in (run, undisturbed)]
        assert snapshot.list_marks(folders[0]) == snapshot.list_marks(folders[1]) == [45]
        weights = [snapshot.load(folder, 45).agent for folder in folders]
        assert all(torch.allclose(weight, weights[1][name], atol=1e-5) for name, weight in weights[0].items())


def steps_of(place):
    """The step of each seed's newest checkpoint."""
    return [checkpoint.verify(place / f"seed-{seed}" / "checkpoints").step for seed in SEEDS]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Each seed in a run of its own that nobody disturbs."""
    place = tmp_path_factory.mktemp("alone")
    return [start(plan.cfg, out=place / str(plan.cfg.run.seed), quiet=True) for plan in plans()]


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """All seeds at once, undisturbed; nothing in this file writes to their folder."""
    return start_seeds(plans(), out=tmp_path_factory.mktemp("together") / "all", quiet=True)


@pytest.fixture
def ended(together, tmp_path):
    """A copy of the folder of all seeds, at their last step."""
    return shutil.copytree(together[0].path.parent, tmp_path / "ended")


def test_each_seed_is_the_run_it_would_be_alone(together, alone):
    runs = together
    near_end(runs, alone)
    assert len({run.digest() for run in runs}) == len(SEEDS)
    assert {each.name for each in runs[0].path.parent.iterdir()} == {".lock", "seed-0", "seed-1", "seed-2"}
    for run, calm in zip(runs, alone, strict=True):
        assert run.evaluations()["eval/return_mean"] == pytest.approx(calm.evaluations()["eval/return_mean"])
        assert run.evaluations()["step"] == [60, STEPS]
        assert {each.name for each in run.path.iterdir()} == {each.name for each in calm.path.iterdir()}
        origins = [json.loads((each.path / "provenance.json").read_text()) for each in (run, calm)]
        assert origins[0]["seed"] == run.config.run.seed
        assert set(origins[0]) == set(origins[1])


def written(place):
    """How much the seeds have noted so far."""
    tables = [place / f"seed-{seed}" / "metrics.csv" for seed in SEEDS]
    return [table.stat().st_size if table.exists() else 0 for table in tables]


def test_kills_lose_nothing(tmp_path, together):
    """Commands are killed -9 at random moments; every seed is whole every time, and all end where the calm ones do."""
    rng = random.Random(0)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(shrunk().to_json()))
    out, kills, parted = tmp_path / "all", 0, False
    while kills < KILLS and not all((out / f"seed-{seed}" / "DONE").exists() for seed in SEEDS):
        begin = ["train", "--config", str(config), "--seeds", "0:3", "--out", str(out), "--quiet"]
        before = written(out)
        process = forked(["resume", str(out), "--quiet"] if out.exists() else begin)
        while process.exitcode is None and written(out) == before:  # the environments' processes take their time
            process.join(timeout=0.01)
        process.join(timeout=rng.uniform(0, 0.6))
        process.kill()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
        kills += process.exitcode != 0
        if out.exists():
            parted |= len(set(steps_of(out))) > 1  # killed between two saves
            assert all(checkpoint.verify(out / f"seed-{seed}" / "checkpoints").ok for seed in SEEDS)
    assert kills > 1
    runs = resume_seeds(out, quiet=True)
    (near_end if parted else same_end)(runs, together)


@pytest.mark.parametrize(
    ("call", "born"),
    [pytest.param(3, 0, marks=pytest.mark.slow), (6, 1), pytest.param(9, 2, marks=pytest.mark.slow), (10, 3)],
)
def test_a_folder_of_seeds_appears_whole_or_not_at_all(tmp_path, monkeypatch, call, born):
    """Killed before a rename of its birth: of a run inside it (config and provenance have theirs), of the whole."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps(shrunk(steps=5).to_json()))
    begin = ["train", "--config", str(config), "--seeds", "0:3", "--out", str(tmp_path / "all"), "--quiet"]
    with monkeypatch.context() as patched:
        patched.setenv("INTRIGUE_FAULT", f"folder:rename:{call}:kill")
        process = forked(begin)
        process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not (tmp_path / "all").exists()
    hidden = [each for each in tmp_path.iterdir() if each.name.startswith(".all.")]
    assert len([each for each in hidden[0].iterdir() if each.name.startswith("seed-")]) == born
    start(shrunk(steps=5), out=tmp_path / "next", quiet=True)
    assert {each.name for each in tmp_path.iterdir()} == {"config.json", "next"}, "the next birth removes what is left"


def test_a_crash_between_two_saves_leaves_seeds_apart_that_meet_again(tmp_path, together, monkeypatch):
    """Killed before the second seed's checkpoint of step 30 gets its name: three were made at step 0, one at 30."""
    config, out = tmp_path / "config.json", tmp_path / "all"
    config.write_text(json.dumps(shrunk().to_json()))
    with monkeypatch.context() as patched:
        patched.setenv("INTRIGUE_FAULT", "checkpoint:rename:5:kill")
        process = forked(["train", "--config", str(config), "--seeds", "0:3", "--out", str(out), "--quiet"])
        process.join()
    assert process.exitcode == -signal.SIGKILL
    assert steps_of(out) == [30, 0, 0]
    near_end(resume_seeds(out, quiet=True), together)


def damage(place, seed):
    """Spoil a seed's newest checkpoint."""
    newest = checkpoint.list_checkpoints(place / f"seed-{seed}" / "checkpoints")[-1] / "state.json"
    newest.write_bytes(newest.read_bytes()[:-1])


def test_seeds_that_are_behind_catch_up_first(tmp_path, together, capsys):
    place = tmp_path / "all"
    start_seeds(plans(steps=90, **{"run.keep": 3, "run.eval_every": 0}), out=place, quiet=True)
    damage(place, 1)  # back to 60
    newer = checkpoint.list_checkpoints(place / "seed-2" / "checkpoints")[1:]
    for each in newer:  # back to 30, as if the machine had stopped before two saves
        shutil.rmtree(each)
    capsys.readouterr()
    runs = resume_seeds(place, steps=STEPS)
    said = capsys.readouterr().err
    assert "checkpoint" in said and "is damaged and was passed over" in said
    first = said.index("seeds behind the others, at step 30: 2; they go on to step 60 first")
    assert first < said.index("seeds behind the others, at step 60: 1, 2; they go on to step 90 first")
    near_end(runs, together)
    assert [run.step for run in runs] == [STEPS] * 3


def test_a_finished_seed_is_left_alone(ended, together):
    place = ended
    (place / "seed-0" / "DONE").unlink()
    for folder in checkpoint.list_checkpoints(place / "seed-0" / "checkpoints")[1:]:
        shutil.rmtree(folder)  # of 90 and 120, the newer
    written = {seed: (place / f"seed-{seed}" / "metrics.csv").stat().st_mtime_ns for seed in SEEDS}
    near_end(resume_seeds(place, quiet=True), together)
    now = {seed: (place / f"seed-{seed}" / "metrics.csv").stat().st_mtime_ns for seed in SEEDS}
    assert [seed for seed in SEEDS if now[seed] != written[seed]] == [0]


def test_a_signal_saves_all_seeds_at_one_step(tmp_path, together):
    place = tmp_path / "all"

    def interrupt():
        while not (place / "seed-2" / "metrics.csv").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(Interrupted, match=f"go on with `intrigue resume {place}`") as stopped:
        start_seeds(plans(steps=10**9, checkpoint_every=10**6), out=place, quiet=True)
    assert stopped.value.exit_code == 143
    steps = steps_of(place)
    assert len(set(steps)) == 1 and steps[0] > 0
    assert f"saved at step {steps[0]}" in str(stopped.value)
    if steps[0] < STEPS:  # a machine that stood still for long may be beyond it
        runs = resume_seeds(place, steps=STEPS, quiet=True)
        assert [run.digest() for run in runs] == [calm.digest() for calm in together]


def test_a_new_last_step_behind_one_seed_changes_none(ended):
    place = ended
    before = [(place / f"seed-{seed}" / "config.json").read_bytes() for seed in SEEDS]
    with pytest.raises(ConfigError, match=f"--steps 40 lies behind the run, which is at step {STEPS}"):
        resume_seeds(place, steps=40, quiet=True)
    assert [(place / f"seed-{seed}" / "config.json").read_bytes() for seed in SEEDS] == before
    with (
        RunLock(place / "seed-1", "somebody else"),
        pytest.raises(ConfigError, match=r"seed-1 is in use by .*somebody else"),
    ):
        resume_seeds(place, steps=2 * STEPS, quiet=True)
    assert [(place / f"seed-{seed}" / "config.json").read_bytes() for seed in SEEDS] == before


def test_a_fault_in_one_seed_stops_all_and_names_it(tmp_path):
    plugin, log = tmp_path / "faulty.py", tmp_path / "said"
    plugin.write_text(FAULTY.replace("FIRST", str(derive_seed(5, "env", 0))))  # as the pool seeds its first episodes
    config = tmp_path / "config.json"
    layer = {"checkpoint_every": 20, "run.snapshots": (), "run.eval_every": 0, "pool.num_envs": 1, "pool.workers": 0}
    tree = shrunk(**layer).to_json()
    tree["env"] = {"id": "faulty"}
    config.write_text(json.dumps(tree))
    arguments = ["train", "--config", str(config), "--plugin", str(plugin), "--seeds", "4,5,9"]
    arguments += ["--out", str(tmp_path / "all")]
    process = forked([*arguments, "--quiet"], log)
    process.join()
    said = log.read_text()
    assert process.exitcode == 3, said
    assert "error: seed 5: " in said and "Traceback" not in said
    assert "All 3 seeds stopped, last noted at step 30; of each the checkpoint of step 20 is intact" in said
    for seed in (4, 5, 9):
        assert checkpoint.verify(tmp_path / "all" / f"seed-{seed}" / "checkpoints").step == 20


FAULTY = '''"""An environment that breaks at its 31st step where its first episode had the seed FIRST."""
import gymnasium as gym
import numpy as np
from intrigue.envs import Env, EnvInfo, Step, register_env

@register_env("faulty")
class Faulty(Env):
    def __init__(self, cfg, name):
        self.first, self.steps = None, 0
        self.info = EnvInfo(gym.spaces.Box(-1, 1, (2,), np.float32), gym.spaces.Box(-1, 1, (1,), np.float32))
    def reset(self, seed):
        self.first = seed if self.first is None else self.first
        return np.zeros(2, np.float32)
    def step(self, action):
        self.steps += 1
        broken = self.first == FIRST and self.steps == 31
        return Step(np.full(2, np.nan if broken else 0.5, np.float32), 0.0, False, self.steps % 10 == 0)
    def snapshot(self):
        return {"steps": self.steps, "first": self.first}
    def restore(self, state):
        self.steps, self.first = state["steps"], state["first"]
'''
