"""Which runs are averaged together, and what happens to all the others."""

from __future__ import annotations

import json
import os
import random
import socket

import pytest

from intrigue.config.run import resolve
from intrigue.errors import CheckpointError, ConfigError
from intrigue.presets import preset_layer
from intrigue.report.arms import sort_tasks
from intrigue.report.commands import plain_commands
from intrigue.report.numbers import coverage, estimate_arm
from intrigue.report.page import find_runs, read_tasks
from intrigue.report.record import read_record
from intrigue.report.sections import collect_warnings
from intrigue.report.tables import difference_table, run_table
from report_folders import config_of, visits_of, write_run


def tasks_of(*paths):
    return sort_tasks([read_record(path) for path in paths])


def labels_of(*paths) -> list[str]:
    (task,) = tasks_of(*paths)
    return [arm.label for arm in task.arms]


def damage(path) -> None:
    """Flip one byte of the selected checkpoint."""
    (tensors,) = path.glob("checkpoints/*/tensors.safetensors")
    content = bytearray(tensors.read_bytes())
    content[-1] ^= 1
    tensors.write_bytes(content)


def test_only_seeds_are_averaged(tmp_path):
    paths = [
        write_run(tmp_path / "a", config_of(0), visits=visits_of(19)),
        write_run(tmp_path / "b", config_of(1), visits=visits_of(19)),
        write_run(tmp_path / "c", config_of(0, reward__form="ratio"), visits=visits_of(1)),
        write_run(tmp_path / "d", config_of(0, reward="none"), visits=visits_of(2)),
        write_run(tmp_path / "e", config_of(0, reward="none", agent="random"), visits=visits_of(3)),
    ]
    random.Random(0).shuffle(paths)
    (task,) = tasks_of(*paths)
    assert {arm.label: len(arm.runs) for arm in task.arms} == {
        "nnmc (knn, form=centered)": 2,
        "nnmc (knn, form=ratio)": 1,
        "none": 1,
        "random policy": 1,
    }
    assert [arm.label for arm in task.arms][-2:] == ["none", "random policy"]


def test_bookkeeping_makes_no_arm_but_a_step_budget_does(tmp_path):
    paths = [
        write_run(tmp_path / "a", config_of(0), visits=visits_of(19)),
        write_run(tmp_path / "b", config_of(1, run__keep=9, checkpoint_every=7), visits=visits_of(19)),
        write_run(tmp_path / "c", config_of(2, steps=800), visits=visits_of(19)),
    ]
    assert labels_of(*paths) == ["nnmc (knn, 400 steps)", "nnmc (knn, 800 steps)"]
    (task,) = tasks_of(*paths)
    assert any("different numbers of steps" in text for text in collect_warnings(task))


def test_several_environments_of_an_agent_that_is_published_with_one_are_said(tmp_path):
    """URLB's DDPG steps one; PPO is published with many, and says nothing."""
    layers = (("a", 1), ("b", 8))
    paths = [
        write_run(tmp_path / name, resolve(preset_layer("nnm-urlb"), {"pool.num_envs": count}))
        for name, count in layers
    ]
    assert sorted(labels_of(*paths)) == ["nnm (knn)", "nnm (knn, 8 environments)"]
    assert labels_of(paths[1]) == ["nnm (knn, 8 environments)"], "also where nothing stands beside it"


def test_versions_are_kept_apart(tmp_path):
    old = {"versions": {"intrigue": "0.0.9"}}
    paths = [
        write_run(tmp_path / "a", config_of(0), visits=visits_of(19)),
        write_run(tmp_path / "b", config_of(1), visits=visits_of(19), provenance=old),
    ]
    assert labels_of(*paths) == ["nnmc (knn, version 0.0.9)", "nnmc (knn, version 0.1.0)"]


def test_different_environments_are_different_tasks(tmp_path):
    first = write_run(tmp_path / "a", config_of(), visits=visits_of(19))
    second = write_run(tmp_path / "b", config_of(env__layout_seed=2), visits=visits_of(19))
    assert len(tasks_of(first, second)) == 2


def test_a_damaged_run_is_listed_and_not_averaged(tmp_path):
    paths = [write_run(tmp_path / str(seed), config_of(seed), visits=visits_of(19)) for seed in (0, 1)]
    bad = write_run(tmp_path / "2", config_of(2), visits=visits_of(0))
    damage(bad)
    (task,) = tasks_of(*paths, bad)
    (arm,) = task.arms
    assert [run.seed for run in arm.counted] == [0, 1]
    assert estimate_arm(arm, coverage).mean == 1.0
    assert collect_warnings(task) == ["nnmc (knn): the numbers are of 2 finished runs out of 3 (1 damaged)."]
    (row,) = [row for row in run_table([task], []).rows if row[3].text == "damaged"]
    assert row[0].text == str(bad)
    assert "SHA-256" in row[0].note


@pytest.mark.parametrize("file", ["metrics.csv", "episodes.csv", "DONE", "config.json"])
def test_every_garbled_file_is_found(tmp_path, file):
    path = write_run(tmp_path / "a", config_of(), visits=visits_of(19), episodes=[(1, 1.0)])
    (path / file).write_bytes(b"step,frame\nx,y\n" + b"\xff\n")
    record = read_record(path)
    assert record.state == "damaged"
    assert file in record.reason or "line 2" in record.reason


def test_settings_that_are_not_the_runs_own_are_damage(tmp_path):
    path = write_run(tmp_path / "a", config_of(), visits=visits_of(19))
    (path / "config.json").write_text(json.dumps(config_of(reward__form="ratio").to_json()))
    assert "does not describe the run" in read_record(path).reason


def test_unfinished_runs_are_not_mixed_with_finished_ones(tmp_path):
    whole = write_run(tmp_path / "a", config_of(0), visits=visits_of(19))
    part = write_run(tmp_path / "b", config_of(1), visits=visits_of(1), step=200, finished=False)
    (task,) = tasks_of(whole, part)
    assert [run.seed for run in task.arms[0].counted] == [0]
    assert "1 finished run out of 2 (1 unfinished)" in collect_warnings(task)[0]


def test_unfinished_runs_at_one_step_are_shown_so_far_and_others_not_averaged(tmp_path):
    def part(name, seed, step):
        return write_run(tmp_path / name, config_of(seed), visits=visits_of(1), step=step, finished=False)

    first, second, third = part("a", 0, 200), part("b", 1, 200), part("c", 2, 300)
    (task,) = tasks_of(first, second)
    assert task.arms[0].so_far and len(task.arms[0].counted) == 2
    (task,) = tasks_of(first, third)
    assert task.arms[0].counted == []
    assert "not averaged" in collect_warnings(task)[0]


def test_a_run_in_use_is_running_and_a_dead_holder_is_not(tmp_path):
    path = write_run(tmp_path / "a", config_of(), visits=visits_of(1), step=200, finished=False)
    holder = {"format": "intrigue-lock", "host": socket.gethostname(), "pid": os.getpid(), "since": "now"}
    (path / ".lock").write_text(json.dumps(holder))
    assert read_record(path).state == "running"
    (path / ".lock").write_text(json.dumps({**holder, "pid": 2**22 + 5}))  # above Linux's largest process id
    assert read_record(path).state == "unfinished"


def test_the_same_seed_twice_counts_once(tmp_path):
    paths = [write_run(tmp_path / name, config_of(0), visits=visits_of(19)) for name in "ab"]
    (task,) = tasks_of(*paths)
    (arm,) = task.arms
    assert [run.state for run in arm.runs] == ["finished", "duplicate"]
    assert len(arm.counted) == 1
    assert estimate_arm(arm, coverage).low is None


def test_a_damaged_copy_does_not_hide_the_whole_one(tmp_path):
    bad = write_run(tmp_path / "a", config_of(0), visits=visits_of(19))
    damage(bad)
    good = write_run(tmp_path / "b", config_of(0), visits=visits_of(19))
    (task,) = tasks_of(bad, good)
    assert [run.state for run in task.arms[0].runs] == ["damaged", "finished"]


def test_the_difference_table_shows_what_differs_and_nothing_else(tmp_path):
    paths = [
        write_run(tmp_path / "a", config_of(0), visits=visits_of(1)),
        write_run(tmp_path / "b", config_of(0, reward="none", agent__clip=0.3), visits=visits_of(1)),
    ]
    (task,) = tasks_of(*paths)
    table = difference_table(task)
    assert table is not None
    assert table.headings == ["setting", "nnmc (knn)", "none"]
    shown = {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}
    assert shown == {"agent.clip": [str(config_of().agent_options["clip"]), "0.3"], "reward.name": ["nnmc", "none"]}


def test_missing_comparisons_come_with_commands_that_a_shell_takes(tmp_path):
    odd = tmp_path / "it's; here"
    path = write_run(odd / "run", config_of(), visits=visits_of(1))
    (task,) = tasks_of(path)
    train, report = plain_commands(task, [path])
    import shlex

    assert shlex.split(train) == [
        "intrigue", "train", "--config", f"{path}/config.json", "--reward", "none", "--out", f"{path}-none",
    ]  # fmt: skip
    assert shlex.split(report) == ["intrigue", "report", str(path), f"{path}-none"]
    plain = write_run(tmp_path / "p", config_of(reward="none"), visits=visits_of(1))
    (task,) = tasks_of(path, plain)
    assert plain_commands(task, [path, plain]) == []


def test_folders_of_runs_stand_for_their_runs_and_each_counts_once(tmp_path):
    paths = [write_run(tmp_path / "all" / name, config_of(), visits=visits_of(1)) for name in "ab"]
    assert find_runs([tmp_path / "all", paths[0]]) == paths


def test_folders_of_seeds_among_runs_stand_for_their_runs(tmp_path):
    root = tmp_path / "runs"
    single = write_run(root / "a", config_of(), visits=visits_of(1))
    seeds = [write_run(root / "b" / f"seed-{seed}", config_of(seed), visits=visits_of(1)) for seed in (0, 1)]
    beside = write_run(root / "b" / "seed-1-again", config_of(1), visits=visits_of(1))
    part = write_run(root / "c" / "seed-0", config_of(5), visits=visits_of(1), step=200, finished=False)
    write_run(root / ".hidden" / "seed-0", config_of(9), visits=visits_of(1))  # being made
    write_run(root / "other" / "deep", config_of(9), visits=visits_of(1))  # no folder of seeds
    assert find_runs([root]) == [single, *seeds, beside, part]
    assert find_runs([root / "b"]) == [*seeds, beside]
    assert [read_record(path).state for path in find_runs([root / "c", root / "b"])] == [
        "unfinished",
        *["finished"] * 3,
    ]


def test_every_wrong_folder_is_named_at_once(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError) as caught:
        find_runs([tmp_path / "gone", tmp_path / "empty", tmp_path / "file"])
    texts = [str(problem) for problem in caught.value.problems]
    assert ["does not exist" in texts[0], "holds no run" in texts[1], "is not a folder" in texts[2]] == [True] * 3


def test_nothing_readable_is_an_error_of_damage(tmp_path):
    path = write_run(tmp_path / "a", config_of(), visits=visits_of(1))
    damage(path)
    with pytest.raises(CheckpointError, match="none of these runs can be read"):
        read_tasks([path])
