"""Fine-tuning of a folder of seeds: each from its own snapshot, each as it would be by itself."""

from __future__ import annotations

import json
import shutil

import pytest

from finetune_runs import shrunk
from intrigue.cli import main
from intrigue.errors import ConfigError
from intrigue.run.checkpoint import snapshot
from intrigue.run.driver import SeedRun, resume_seeds, start_seeds
from intrigue.run.finetune import finetune
from intrigue.run.folder import RunFolder, read_provenance
from intrigue.studies.common.run_records import _evaluation_rows

SHORT = {"steps": 40, "device": "cpu", "quiet": True}


@pytest.fixture(scope="module")
def walkers(tmp_path_factory):
    """The folder of two pre-trainings that nothing in this file writes to."""
    place = tmp_path_factory.mktemp("pre") / "walkers"
    changes = {"curiosity.int_coef": 2.0}  # fine-tuning sets it to 0: it shows in the pre-training alone
    start_seeds([SeedRun(shrunk("nnm-urlb", seed=seed, **changes)) for seed in (0, 3)], out=place, quiet=True)
    return place


@pytest.fixture
def copy(walkers, tmp_path):
    return shutil.copytree(walkers, tmp_path / "walkers")


def test_every_seed_is_tuned_from_its_own_snapshot_as_it_would_be_alone(copy):
    found = finetune(copy, "walker_run", mark=30, **SHORT)
    place = copy.parent / "walkers__walker_run__30"
    assert [each.run.path for each in found] == [place / "seed-0", place / "seed-3"]
    for each in found:
        seed = each.run.config.run.seed
        (alone,) = finetune(copy / f"seed-{seed}", "walker_run", mark=30, **SHORT)
        assert alone.run.path == copy / f"seed-{seed}__walker_run__30__{seed}"
        for name in ("losses/critic_loss", "losses/actor_loss", "charts/episodic_return"):
            wanted = alone.run.metrics()[name]
            assert each.run.metrics()[name] == pytest.approx(wanted, rel=1e-4, abs=1e-6, nan_ok=True), name
        assert (each.task, each.mark, each.episodes) == (alone.task, alone.mark, alone.episodes)
        assert (each.score, each.spread) == pytest.approx((alone.score, alone.spread), rel=1e-3)
        origin = read_provenance(RunFolder(each.run.path))["finetuned_from"]
        assert origin["run"] == f"walkers/seed-{seed}"
        assert origin["digest"] == snapshot.load(RunFolder(copy / f"seed-{seed}"), 30).digest
    assert found[0].run.digest() != found[1].run.digest()
    resumed = resume_seeds(place, steps=45, quiet=True)
    assert [run.step for run in resumed] == [45, 45]


def test_a_study_names_tuned_seeds_by_their_pre_training(copy):
    found = finetune(copy, "walker_run", **SHORT, eval_every=15)
    assert [each.run.evaluations()["step"] for each in found] == [[15, 30, 40]] * 2
    (alone,) = finetune(copy / "seed-3", "walker_run", **SHORT)
    rows = [_evaluation_rows(RunFolder(each.run.path), None)[-1:] for each in (found[1], alone)]
    assert [row[:7] for row in rows[0]] == [row[:7] for row in rows[1]], "all but the figures"
    assert "curiosity.int_coef=2" in rows[0][0][3]


def test_what_is_printed(copy, capsys):
    options = ["--task", "walker_run", "--steps", "20", "--device", "cpu", "--quiet"]
    assert main(["finetune", str(copy), *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("walkers__walker_run__60")
    assert [line.split(":")[0] for line in lines[1:]] == ["seed 0", "seed 3", "mean of 2 seeds"]
    assert main(["finetune", str(copy), *options, "--out", str(copy.parent / "again"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [each["seed"] for each in told["seeds"]] == [0, 3]
    assert told["return_mean"] == pytest.approx(sum(each["return_mean"] for each in told["seeds"]) / 2)
    assert told["normalized"] == pytest.approx(told["return_mean"] / told["expert"])
    assert told["folder"] == str(copy.parent / "again") and told["snapshot"] == 60


def test_what_cannot_be_tuned_is_refused_before_anything_is_made(copy, capsys):
    there = sorted(each.name for each in copy.parent.iterdir())
    assert main(["finetune", str(copy), "--task", "walker_run", "--seed", "1"]) == 2
    assert "holds several seeds, and each keeps its own" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="is not of the domain"):
        finetune(copy, "quadruped_run", **SHORT)
    shutil.rmtree(copy / "seed-3" / "snapshots" / f"{60:012d}")
    with pytest.raises(ConfigError, match="newest snapshots differ: 30, 60"):
        finetune(copy, "walker_run", **SHORT)
    with pytest.raises(ConfigError, match=r"seed-3 has no snapshot of 60 steps. There are: 30"):
        finetune(copy, "walker_run", mark=60, **SHORT)
    shutil.copytree(copy / "seed-0", copy / "seed-1")
    with pytest.raises(ConfigError, match="holds two runs of seed 0"):
        finetune(copy, "walker_run", mark=30, **SHORT)
    assert sorted(each.name for each in copy.parent.iterdir()) == there
