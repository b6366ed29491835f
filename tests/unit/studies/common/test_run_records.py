"""URLB's results out of run folders and files: what is written, what runs are called, what is refused."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from intrigue.config.run import resolve
from intrigue.errors import ConfigError
from intrigue.presets import preset_layer
from intrigue.studies.common.arm_names import ArmName
from intrigue.studies.common.run_records import (
    EVALUATIONS,
    SET_BY_FINETUNING,
    export_evaluations,
    gather_records,
    read_records,
)
from report_folders import write_run
from study_rows import LINE, TUNED, write_tuned


def test_export_writes_every_evaluation(tmp_path):
    before = resolve(preset_layer("nnm-urlb"), {"env": "dmc/walker", "agent.n_step": 3, "pool.num_envs": 4})
    write_run(tmp_path / "pre", before)
    changed = {**TUNED, "pool.num_envs": 4}
    write_tuned(tmp_path / "a", "nnm-urlb", "walker_run", [(1000, 50.0), (2000, 80.25)], "pre", seed=3, **changed)
    write_tuned(tmp_path / "b", "scratch-urlb", "walker_run", [(2000, 20.0)])
    path = export_evaluations([tmp_path / "pre", tmp_path / "a", tmp_path / "b"], tmp_path / "deep" / "x.csv")
    rows = list(csv.reader(path.read_text().splitlines()))
    assert tuple(rows[0]) == EVALUATIONS.columns
    name = ["nnm-urlb", "agent.n_step=3 pool.num_envs=4"]
    assert rows[1] == ["walker", "walker_run", *name, "3", "500", "1000", "50", "1.5", "10", "796", "10.0", "4"]
    assert rows[2][4:8] == ["3", "500", "2000", "80.25"]
    assert rows[3][:8] == ["walker", "walker_run", "scratch-urlb", "", "0", "0", "2000", "20"] and rows[3][-1] == "1"
    assert len(rows) == 4, "the pre-training adds nothing"
    found = read_records(path, EVALUATIONS)
    assert [(run.name.preset, run.seed, run.snapshot, run.last_step, run.at(1500)) for run in found[:1]] == [
        ("nnm-urlb", 3, 500, 2000, 50.0)
    ]


def test_a_fine_tuning_alone_is_named_by_what_it_kept(tmp_path):
    """Without its pre-training beside it, settings that fine-tuning overwrites cannot be told."""
    write_tuned(tmp_path / "a", "nnmc-urlb", "jaco_reach_top_left", [(9, 1.0)], "gone", **{**TUNED, "agent.n_step": 1})
    [run] = gather_records([tmp_path], EVALUATIONS)
    assert run.name == ArmName("nnmc-urlb", "finetune.n_step=1")
    other = resolve(preset_layer("apt-urlb"), {"env": "dmc/jaco"})
    write_run(tmp_path / "gone", other)
    [run] = gather_records([tmp_path], EVALUATIONS)
    assert run.name.preset == "nnmc-urlb", "a folder of the same name with another reward is not its origin"


def test_what_fine_tuning_sets_is_what_the_names_leave_out():
    from intrigue.run.finetune import N_STEP
    from intrigue.studies.common import run_records

    assert N_STEP == run_records.N_STEP
    source = Path(run_records.__file__).parents[2] / "run/finetune.py"
    body = source.read_text().partition("def configure(")[2].partition("\ndef ")[0]
    overwritten = {part.split('"')[0] for part in body.split('"curiosity.')[1:]}
    assert {f"curiosity.{each}" for each in overwritten} | {"agent.n_step"} == set(SET_BY_FINETUNING)


def test_runs_elsewhere_are_refused(tmp_path):
    write_tuned(tmp_path / "a", "scratch-urlb", "cartpole_swingup", [(9, 1.0)])
    with pytest.raises(ConfigError, match="URLB's tasks"):
        export_evaluations([tmp_path / "a"], tmp_path / "x.csv")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([LINE.format(100, 5), LINE.format(100, 6)], "line 3: frame 100 follows frame 100"),
        ([LINE.format(100, "nan")], "line 2: a return of nan"),
        ([LINE.format("x", 5)], "line 2: invalid literal"),
        ([LINE.format(100, 5).replace("walker_run", "walker_fly")], "line 2: 'walker_fly' is no task"),
        ([LINE.format(100, 5).replace("796", "800")], "the expert's score in walker_run is 796, not 800"),
    ],
)
def test_damaged_files_are_refused_by_line(tmp_path, lines, message):
    path = tmp_path / "x.csv"
    path.write_text("\n".join([",".join(EVALUATIONS.columns), *lines, ""]))
    with pytest.raises(ConfigError, match=message):
        read_records(path, EVALUATIONS)


def test_a_run_in_two_files_is_refused(tmp_path):
    for name in ("x.csv", "y.csv"):
        (tmp_path / name).write_text("\n".join([",".join(EVALUATIONS.columns), LINE.format(100, 5), ""]))
    with pytest.raises(ConfigError, match=r"stands in .*x\.csv and in .*y\.csv"):
        gather_records([tmp_path / "x.csv", tmp_path / "y.csv"], EVALUATIONS)


def test_two_equal_runs_in_a_folder_are_named(tmp_path):
    for name in ("first", "again"):
        write_tuned(tmp_path / name, "scratch-urlb", "walker_run", [(500, 1.0), (2000, 2.0)])
    with pytest.raises(ConfigError, match=r"scratch-urlb on walker_run, seed 0.*stands in .*again and in .*first"):
        gather_records([tmp_path], EVALUATIONS)


def test_the_folder_of_a_study_is_read_by_the_names_it_gave(tmp_path):
    """Smaller settings have no preset of their own; only the study knows which method a run stands for."""
    small = {"agent.batch": 128, "agent.hidden": 256}
    write_tuned(tmp_path / "runs" / "a", "apt-urlb", "walker_run", [(9, 1.0)], **small)
    [run] = gather_records([tmp_path], EVALUATIONS)
    assert run.name.changes
    table = export_evaluations(
        [tmp_path / "runs" / "a"], tmp_path / "results.csv", name_of=lambda _: ArmName("apt-urlb-small")
    )
    [run] = gather_records([tmp_path], EVALUATIONS)
    assert run.name == ArmName("apt-urlb-small")
    with pytest.raises(ConfigError, match="each run once"):
        gather_records([tmp_path, table], EVALUATIONS)


def test_a_fine_tuning_with_other_environments_than_its_pretraining_says_so(tmp_path):
    write_run(tmp_path / "pre", resolve(preset_layer("nnm-urlb"), {"env": "dmc/walker", "pool.num_envs": 8}))
    write_tuned(tmp_path / "a", "nnm-urlb", "walker_run", [(9, 1.0)], "pre", **TUNED)
    [run] = gather_records([tmp_path], EVALUATIONS)
    assert run.name == ArmName("nnm-urlb", "pool.num_envs=8 finetune.num_envs=1")
