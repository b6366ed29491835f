"""What a run began with: it makes an arm, stands in its label, and belongs to the command that repeats it."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from intrigue.datasets.sealed_folder import seal
from intrigue.report.arms import Task, sort_tasks
from intrigue.report.commands import plain_commands, repeat_commands
from intrigue.report.origin import read_origin
from intrigue.report.page import compose_report
from intrigue.report.record import read_record
from intrigue.report.tables import difference_table
from report_folders import config_of, visits_of, write_pretraining, write_run, write_tuning


def task_of(*paths) -> Task:
    (task,) = sort_tasks([read_record(path) for path in paths])
    return task


def counted_of(*paths) -> dict[str, int]:
    return {arm.label: len(arm.counted) for arm in task_of(*paths).arms}


def given(folder="walker-data", step=3000, digest="d", **fields) -> dict:
    """The provenance of a run that began with episodes."""
    of = {"run": "walker", "step": step, "digest": digest}
    return {"versions": {"intrigue": "0.1.0"}, "replay_from": {"folder": folder, "of": of, "seal": "s", **fields}}


def test_other_snapshots_and_no_snapshot_are_arms_of_their_own(tmp_path):
    pre = write_pretraining(tmp_path / "pre")
    paths = [write_tuning(tmp_path / str(mark), pre, mark) for mark in (1000, 3000)]
    paths += [write_tuning(tmp_path / "scratch", None), write_tuning(tmp_path / "other", pre, 1000, seed=1)]
    assert counted_of(*paths) == {
        "nnm (knn, from scratch)": 1,
        "nnm (knn, from snapshot 1000 of pre)": 2,
        "nnm (knn, from snapshot 3000 of pre)": 1,
    }
    table = difference_table(task_of(*paths))
    assert table is not None
    (row,) = table.rows
    assert [cell.text for cell in row][:2] == ["begun", "from scratch"]


def test_seeds_of_one_pre_training_are_one_arm(tmp_path):
    pres = [write_pretraining(tmp_path / "pre" / f"seed-{seed}", seed) for seed in (0, 1)]
    paths = [
        write_tuning(tmp_path / "tuned" / pre.name, pre, seed=seed, name=f"pre/{pre.name}")
        for seed, pre in enumerate(pres)
    ]
    assert counted_of(*paths) == {"nnm (knn, from snapshot 3000 of pre)": 2}
    shutil.rmtree(tmp_path / "pre")
    assert counted_of(*paths) == {"nnm (knn, from snapshot 3000 of pre)": 2}, "nor is it needed"


def test_seeds_that_were_pre_trained_apart_are_one_arm(tmp_path):
    pres = [write_pretraining(tmp_path / f"pre-{seed}", seed) for seed in (0, 1, 2)]
    paths = [write_tuning(tmp_path / f"t{seed}", pre, seed=seed) for seed, pre in enumerate(pres)]
    assert counted_of(*paths) == {"nnm (knn, from snapshot 3000 of 3 pre-trainings)": 3}
    shutil.rmtree(pres[1])
    # Only one kind is known.
    assert counted_of(*paths) == {"nnm (knn, from snapshot 3000 of 3 pre-trainings, 1 not found)": 3}


def test_pre_trainings_of_other_settings_are_kept_apart(tmp_path):
    """The settings of a fine-tuning say nothing of how the bonus was scaled before."""
    pres = [
        write_pretraining(tmp_path / "calm"),
        write_pretraining(tmp_path / "wild", curiosity__scale="value"),
    ]
    paths = [write_tuning(tmp_path / f"of-{pre.name}", pre) for pre in pres]
    assert counted_of(*paths) == {
        "nnm (knn, from snapshot 3000 of calm)": 1,
        "nnm (knn, from snapshot 3000 of wild)": 1,
    }


def test_only_the_same_snapshot_and_seed_twice_is_a_duplicate(tmp_path):
    pres = [write_pretraining(tmp_path / f"pre-{seed}", seed) for seed in (0, 1)]
    paths = [write_tuning(tmp_path / f"t-{pre.name}", pre, seed=7) for pre in pres]
    copy = write_tuning(tmp_path / "t-twice", pres[0], seed=7)
    (arm,) = task_of(*paths, copy).arms
    assert [run.state for run in arm.runs] == ["finished", "finished", "duplicate"]


def test_given_episodes_make_an_arm(tmp_path):
    layers = {"a": None, "b": given(), "c": given("again-v0", seal="t"), "d": given(step=1000, digest="e")}
    paths = [
        write_run(tmp_path / name, config_of(), visits=visits_of(1), provenance=layer) for name, layer in layers.items()
    ]
    assert counted_of(*paths) == {
        "nnmc (knn)": 1,
        "nnmc (knn, with the replay of walker at step 1000)": 1,
        "nnmc (knn, with the replay of walker at step 3000)": 1,
    }
    states = [run.state for arm in task_of(*paths).arms for run in arm.runs]
    assert sorted(states) == ["duplicate", "finished", "finished", "finished"], "the same episodes in another format"


def test_episodes_that_nobody_sealed_are_told_by_their_folder(tmp_path):
    layers = [given("one", of=None, seal=None), given("two", of=None, seal=None)]
    paths = [
        write_run(tmp_path / str(index), config_of(), visits=visits_of(1), provenance=layer)
        for index, layer in enumerate(layers)
    ]
    assert list(counted_of(*paths)) == ["nnmc (knn, with the replay of one)", "nnmc (knn, with the replay of two)"]


def test_a_fine_tuning_is_repeated_by_finetune(tmp_path):
    pre = write_pretraining(tmp_path / "it's pre")
    path = write_tuning(tmp_path / "tuned", pre, 1000, seed=4)
    (line,) = repeat_commands(read_record(path))
    assert shlex.split(line) == [
        "intrigue", "finetune", str(pre), "--task", "dmc/walker_run", "--snapshot", "1000", "--steps", "400",
        "--n-step", "3", "--eval-every", "100", "--seed", "4", "--device", "cpu", "--out", f"{path}-again",
    ]  # fmt: skip


def test_the_pre_training_is_found_from_wherever_the_run_was_named(tmp_path, monkeypatch):
    pre = write_pretraining(tmp_path / "pre" / "seed-0")
    write_tuning(tmp_path / "tuned" / "seed-0", pre, name="pre/seed-0")
    monkeypatch.chdir(tmp_path / "tuned")
    (line,) = repeat_commands(read_record(Path("seed-0")))
    assert shlex.split(line)[2] == "../pre/seed-0"


def test_a_folder_of_the_right_name_is_not_enough(tmp_path):
    pre = write_pretraining(tmp_path / "pre")
    path = write_tuning(tmp_path / "tuned", pre)
    shutil.rmtree(pre)
    write_pretraining(tmp_path / "pre", seed=9)
    note, line = repeat_commands(read_record(path))
    assert note == "# PATH/TO/pre stands for the pre-training it began with; it is not beside the run."
    assert shlex.split(line)[:3] == ["intrigue", "finetune", "PATH/TO/pre"]


@pytest.mark.parametrize("name", ["../pre", "/pre", "..", "", "a\x00b", "\ud800"])
def test_no_name_leads_elsewhere(tmp_path, name):
    write_pretraining(tmp_path / "pre")
    pre = write_pretraining(tmp_path / "in" / "pre")
    record = read_record(write_tuning(tmp_path / "in" / "tuned", pre))
    fields = {**record.provenance["finetuned_from"], "run": name}
    origin = read_origin(tmp_path / "in" / "tuned", {"finetuned_from": fields})
    assert origin is not None and origin.place is None


def test_given_episodes_are_given_again(tmp_path):
    data = tmp_path / "data" / "walker-data"
    data.mkdir(parents=True)
    seal(data, [], {})
    noted = {"seal": json.loads((data / "export.json").read_text())["seal"]}
    path = write_run(tmp_path / "runs" / "r", config_of(), visits=visits_of(1), provenance=given(**noted))
    (line,) = repeat_commands(read_record(path))
    command = ["intrigue", "train", "--config", f"{path}/config.json", "--replay-from"]
    assert shlex.split(line) == [*command, str(data), "--out", f"{path}-again"]
    assert f"--replay-from {data} --reward none" in plain_commands(task_of(path), [path])[0]
    shutil.rmtree(data)
    note, line = repeat_commands(read_record(path))
    assert note.startswith("# PATH/TO/walker-data stands for the episodes")
    assert shlex.split(line) == [*command, "PATH/TO/walker-data", "--out", f"{path}-again"]


@pytest.mark.parametrize(
    "provenance", [{}, {"finetuned_from": None}, {"finetuned_from": {"run": 3}}, {"replay_from": "x"}]
)
def test_an_unknown_origin_is_said_and_no_command_given(tmp_path, provenance):
    path = write_run(tmp_path / "r", config_of(), visits=visits_of(1), provenance=provenance)
    (line,) = repeat_commands(read_record(path))
    assert line == f"# {path} cannot be repeated by its config.json alone: what it began with is not known."
    assert list(counted_of(path)) == ["nnmc (knn, origin unknown)"]


def test_a_fine_tuning_needs_no_run_without_a_bonus(tmp_path):
    pre = write_pretraining(tmp_path / "pre")
    path = write_tuning(tmp_path / "tuned", pre)
    assert plain_commands(task_of(path), [path]) == []
    html = compose_report([path], tmp_path / "p.html").html
    assert "There is no run without a bonus here" not in html
    assert "intrigue finetune" in html and "intrigue train" not in html
    assert plain_commands(task_of(pre), [pre]), "its pre-training has one"


def test_a_weight_of_zero_is_no_bonus_unless_it_grows(tmp_path):
    layers = {"never": {}, "later": {"curiosity__int_coef_steps": 9, "curiosity__int_coef_final": 1.0}}
    advice = {}
    for name, layer in layers.items():
        config = config_of(curiosity__int_coef=0.0, curiosity__ext_coef=1.0, **layer)
        path = write_run(tmp_path / name, config, visits=visits_of(1))
        advice[name] = bool(plain_commands(task_of(path), [path]))
    assert advice == {"never": False, "later": True}
