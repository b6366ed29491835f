"""Plans of fine-tunings: what they share, what waits for what, and what a failure costs."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from finetune_runs import TINY
from intrigue.cli import main
from intrigue.errors import RunError
from intrigue.presets import preset_layer
from intrigue.run.folder import RunFolder, mark_done
from intrigue.studies import engine
from intrigue.studies.base import Arm, Budget, Conclusion
from intrigue.studies.common.run_records import EVALUATIONS, export_evaluations, gather_records
from intrigue.studies.registry import STUDIES
from intrigue.studies.urlb.methods import METHODS, RUN_BY_PAPER
from study_rows import TUNED, rows_of, write_tuned


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch):
    """Differences here are certain or nil; a tenth of the resamples says so as well."""
    monkeypatch.setattr("intrigue.scores.stats.RESAMPLES", 200)


# --- plans


@pytest.mark.parametrize("study", ["table4", "fig6"])
def test_plans_share_pretrainings(study, tmp_path):
    plan = STUDIES.get(study).cls()
    for level, wanted in plan.levels.items():
        budget = plan.budgets[level]
        jobs = engine.make_plan(plan, Budget(budget.steps, 1, level), tmp_path)
        trained = [job for job in jobs if job.before is None and job.arm.steps == 0]
        tuned = [job for job in jobs if job.before is not None]
        methods = [method for method in wanted.methods if method != "scratch"]
        domains = {task.partition("_")[0] for task in wanted.tasks}
        assert len(trained) == len(methods) * len(domains), "one for each method and domain"
        assert len(tuned) == len(methods) * len(wanted.tasks)
        assert len(jobs) == len({job.folder for job in jobs})
        for job in tuned[::17]:
            assert jobs.index(job.before) < jobs.index(job)
            before, after = (each.arm.config(budget, 0) for each in (job.before, job))
            assert after.env_id.startswith(before.env_id + "_") and after.reward_name == before.reward_name
            assert max(before.run.snapshots) == before.run.steps == wanted.pretrain
            assert after.run.steps == wanted.finetune
    assert (plan.levels["full"].pretrain, plan.levels["full"].finetune) == (2_000_000, 100_000)
    smoke = engine.make_plan(plan, plan.budgets["smoke"], tmp_path)
    assert len(smoke) <= 17 and smoke[0].arm.config(plan.budgets["smoke"], 0).run.device == "cpu"


def test_another_pretraining_is_another_fine_tuning(tmp_path):
    budget = Budget(100, 1)
    layer = preset_layer("nnm-urlb")
    before = [Arm("pre", {**layer, "env": "dmc/walker", "agent.batch": size}) for size in (8, 16)]
    digests = [Arm("t", {**layer, "env": "dmc/walker_run"}, steps=5, before=each).digest(budget) for each in before]
    assert digests[0] != digests[1]


class Two:
    """Two fine-tunings of one pre-training, and a run beside them."""

    def arms(self):
        layer = {**preset_layer("nnm-urlb"), "env": "dmc/walker"}
        tuned = {**layer, "env": "dmc/walker_run"}
        return [
            Arm("run", tuned, steps=5, before=Arm("pre", layer)),
            Arm("stand", {**tuned, "env": "dmc/walker_stand"}, steps=5, before=Arm("pre", layer)),
            Arm("alone", tuned),
        ]


class Launched:
    """Instead of processes: what was started, with what exit code it ends."""

    def __init__(self, codes):
        self.codes, self.order = codes, []

    def __call__(self, job, budget):
        self.order.append(job.arm.label)
        code = self.codes.get(job.arm.label, 0)
        for number, run in enumerate(job.runs):
            run.mkdir(parents=True, exist_ok=True)
            if code == 0 or number == 1:  # of several seeds that fail one may have come to its end
                mark_done(RunFolder(run), 1, "x")
        job.folder.with_name(job.folder.name + ".log").write_text("why it failed")
        return type("Process", (), {"poll": lambda self: code, "returncode": code})()


def test_fine_tunings_wait_for_their_pretraining(tmp_path, monkeypatch):
    launched = Launched({})
    monkeypatch.setattr(engine, "_launch", launched)
    monkeypatch.setattr(engine, "POLL_SECONDS", 0.0)
    plan = engine.make_plan(Two(), Budget(10, 1), tmp_path)
    assert [job.arm.label for job in plan] == ["pre", "run", "stand", "alone"]
    assert plan[1].before is plan[0] and plan[2].before is plan[0]
    engine.run_all(plan, Budget(10, 1), 8, lambda text: None)
    assert launched.order == ["pre", "alone", "run", "stand"]
    engine.run_all(plan, Budget(10, 1), 8, lambda text: None)
    assert len(launched.order) == 4, "what is finished is not repeated"


def test_a_failed_pretraining_fails_what_needs_it_and_no_more(tmp_path, monkeypatch):
    launched = Launched({"pre": 3})
    monkeypatch.setattr(engine, "_launch", launched)
    monkeypatch.setattr(engine, "POLL_SECONDS", 0.0)
    plan = engine.make_plan(Two(), Budget(10, 1), tmp_path)
    with pytest.raises(RunError, match="3 of 4 runs failed") as caught:
        engine.run_all(plan, Budget(10, 1), 1, lambda text: None)
    assert launched.order == ["pre", "alone"]
    assert "why it failed" in str(caught.value) and "stand, seed 0: its pre-training failed" in str(caught.value)


def test_fine_tunings_are_started_by_the_command(tmp_path, monkeypatch):
    begun = []
    monkeypatch.setattr(engine.subprocess, "Popen", lambda arguments, **_: begun.append(arguments))
    plan = engine.make_plan(Two(), Budget(10, 2), tmp_path)
    job = [each for each in plan if each.arm.label == "stand"][1]
    engine._launch(job, Budget(10, 2))
    [arguments] = begun
    assert arguments[2:] == [
        "intrigue", "finetune", str(job.before.folder), "--task", "dmc/walker_stand", "--steps", "5", "--seed", "1",
        "--device", "auto", "--out", str(job.folder), "--quiet",
    ]  # fmt: skip


# --- seeds together


@pytest.mark.parametrize("study", ["table4", "fig6"])
def test_ten_seeds_are_one_process(study, tmp_path):
    plan = STUDIES.get(study).cls()
    apart = replace(plan.budgets["full"], together=False)
    one, many = (engine.make_plan(plan, budget, tmp_path) for budget in (plan.budgets["full"], apart))
    assert (len(one) * 10, apart.seeds) == (len(many), 10)
    assert [job.arm.label for job in one] == [job.arm.label for job in many[: len(one)]]
    tuned = one[-1]
    assert tuned.runs == [tuned.folder / f"seed-{seed}" for seed in range(10)]
    assert tuned.folder.name.endswith("__seeds-0-9") and tuned.before.folder.name.endswith("__seeds-0-9")
    for name in ("smoke", "hour"):
        assert all(job.runs == [job.folder] for job in engine.make_plan(plan, plan.budgets[name], tmp_path))


def test_seeds_together_are_started_by_one_command(tmp_path, monkeypatch):
    begun = []
    monkeypatch.setattr(engine.subprocess, "Popen", lambda arguments, **_: begun.append(arguments[3:]))
    budget = Budget(10, 3, together=True)
    before, _, job, _ = engine.make_plan(Two(), budget, tmp_path)
    for each in (before, job):
        engine._launch(each, budget)
    job.folder.mkdir()
    engine._launch(job, budget)
    assert begun == [
        ["train", "--config", f"{before.folder}.config.json", "--seeds", "0:3", "--out", str(before.folder), "--quiet"],
        ["finetune", str(before.folder), "--task", "dmc/walker_stand", "--steps", "5", "--device", "auto",
         "--out", str(job.folder), "--quiet"],
        ["resume", str(job.folder), "--quiet"],
    ]  # fmt: skip


def test_seeds_that_were_done_before_others_failed_are_kept(tmp_path, monkeypatch):
    launched, said = Launched({"pre": 3}), []
    monkeypatch.setattr(engine, "_launch", launched)
    monkeypatch.setattr(engine, "POLL_SECONDS", 0.0)
    budget = Budget(10, 3, together=True)
    plan = engine.make_plan(Two(), budget, tmp_path)
    with pytest.raises(RunError, match="8 of 12 runs failed; the others are kept") as caught:
        engine.run_all(plan, budget, 1, said.append)
    assert "pre, seeds 0 to 2: exit code 3. why it failed" in str(caught.value)
    assert "stand, seeds 0 to 2: its pre-training failed" in str(caught.value)
    launched.codes.clear()
    engine.run_all(plan, budget, 1, said.append)
    assert launched.order == ["pre", "alone", "pre", "run", "stand"]
    assert "4 of 12 runs are finished already" in said


class Small:
    """Two seeds of one pre-training, and one fine-tuning of it; so small that they run in a moment."""

    def arms(self):
        settings = {**TINY, "run.snapshots": (30,), "reward.feature_dim": 6, "reward.hidden": 8, "reward.n": 4}
        layer = {**preset_layer("nnm-urlb"), **settings, "curiosity.int_coef": 2.0, "env": "dmc/walker"}
        before = Arm("walker: nnm-urlb", layer)
        return [Arm("walker_run: nnm-urlb", {**layer, "env": "dmc/walker_run"}, steps=25, before=before)]

    def conclude(self, runs, budget, out):
        return Conclusion(str({label: [path.name for path in paths] for label, paths in runs.items()}), [])


class Command:
    """A command that has run to its end within this process, as soon as it is begun."""

    def __init__(self, arguments, **_):
        self.begun.append(arguments[3])
        self.returncode = main(arguments[3:])

    def poll(self):
        return self.returncode


def test_seeds_together_from_the_first_step_to_the_table(tmp_path, monkeypatch, capsys):
    """The commands themselves; then it is as if a kill had come before the second seed's end was noted."""
    monkeypatch.setattr(Command, "begun", [], raising=False)
    monkeypatch.setattr(engine, "subprocess", SimpleNamespace(Popen=Command, DEVNULL=-3))
    monkeypatch.setattr(engine, "POLL_SECONDS", 0.0)
    budget = Budget(30, 2, together=True)
    found = engine.run_study(Small(), budget, tmp_path, 2, lambda text: None)
    assert found.headline == str({"walker_run: nnm-urlb": ["seed-0", "seed-1"]})
    before, tuned = engine.make_plan(Small(), budget, tmp_path)
    assert Command.begun == ["train", "finetune"] and not before.unfinished and not tuned.unfinished
    (tuned.runs[1] / "DONE").unlink()
    kept = (tuned.runs[0] / "DONE").read_bytes()
    assert engine.make_plan(Small(), budget, tmp_path)[1].unfinished == 1
    engine.run_study(Small(), budget, tmp_path, 2, lambda text: None)
    assert Command.begun == ["train", "finetune", "resume"]
    assert (tuned.runs[0] / "DONE").read_bytes() == kept and not tuned.unfinished
    # What reads results finds both, named by the pre-training they lie beside.
    by_folder = export_evaluations([tuned.folder, before.folder], tmp_path / "a.csv")
    rows = list(csv.DictReader(by_folder.read_text().splitlines()))
    assert [(row["seed"], row["snapshot_frames"], row["finetune_frames"]) for row in rows] == [
        ("0", "30", "25"),
        ("1", "30", "25"),
    ]
    assert all("curiosity.int_coef=2" in row["changes"] for row in rows)
    assert {run.seed: float(run.returns[-1]) for run in gather_records([tmp_path / "runs"], EVALUATIONS)} == {
        int(row["seed"]): float(row["return_mean"]) for row in rows
    }
    monkeypatch.chdir(tuned.folder)
    by_seed = export_evaluations(["seed-0", "seed-1"], tmp_path / "b.csv")
    assert by_seed.read_bytes() == by_folder.read_bytes()
    capsys.readouterr()


def test_seeds_that_are_being_made_are_not_read(tmp_path):
    write_tuned(tmp_path / "tuned" / "seed-0", "nnm-urlb", "walker_run", [(1500, 10.0)], **TUNED)
    write_tuned(tmp_path / ".tuned.new" / "seed-0", "nnm-urlb", "walker_run", [(1500, 20.0)], **TUNED)
    assert [float(run.returns[-1]) for run in gather_records([tmp_path], EVALUATIONS)] == [10.0]


def test_conclude_reads_the_runs_of_the_plan(tmp_path):
    """The whole way from a plan's run folders to its table, without training."""
    plan = STUDIES.get("fig6").cls()
    budget = plan.budgets["smoke"]
    runs: dict[str, list[Path]] = {}
    for place, job in enumerate(engine.make_plan(plan, budget, tmp_path)):
        if job.before is None:
            continue
        preset, origin = job.arm.label.partition(": ")[2], job.before.folder.name
        folder = write_tuned(job.folder, preset, "walker_run", [(1500, 10.0 + place)], origin, 2_000, **TUNED)
        runs.setdefault(job.arm.label, []).append(folder)
    next(iter(runs.values())).append(tmp_path / "never-started")
    found = plan.conclude(runs, budget, tmp_path)
    assert rows_of(found)["walker_run: NNM above APT"].ours == "15 to 13"
    assert found.words[0].startswith("Laptop sizes")
    exported = list(csv.DictReader((tmp_path / "results.csv").read_text().splitlines()))
    assert {row["preset"] for row in exported} == {f"{METHODS[label].preset}-small" for label in RUN_BY_PAPER}
    assert {row["snapshot_frames"] for row in exported} == {"2000"}
