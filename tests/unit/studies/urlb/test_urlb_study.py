"""URLB studies: tables out of results, verdicts by their rules; on made-up runs."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from intrigue.cli import main
from intrigue.errors import ConfigError
from intrigue.scores.normalized import EXPERTS
from intrigue.scores.urlb_published import PAPER_12, PAPER_BOLD, RERUN, RERUN_TASKS, TASKS_12, shares, tasks_of
from intrigue.studies.common.arm_names import ArmName
from intrigue.studies.common.run_records import EVALUATIONS, LearningCurve
from intrigue.studies.fig6 import TASKS, area_under_curves, judge_ratio
from intrigue.studies.registry import STUDIES
from intrigue.studies.urlb.methods import METHODS, RIVALS, label_of, method_of
from intrigue.studies.urlb.results import compare_finetunings, is_nominal
from study_rows import LINE, rows_of
from urlb_rows import judge, tuning, world


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch):
    """Differences here are certain or nil; a tenth of the resamples says so as well."""
    monkeypatch.setattr("intrigue.scores.stats.RESAMPLES", 200)


# --- what is published


def test_published_columns_give_the_known_means():
    """Means of score/expert, computed by hand from the printed tables (reproduction notes)."""
    twelve = {"ICM": 0.425, "RND": 0.629, "APS": 0.465, "Disagreement": 0.557, "APT": 0.748, "NNM": 0.856}
    for method, mean in twelve.items():
        assert shares(PAPER_12[method], TASKS_12).mean() == pytest.approx(mean, abs=6e-4)
    eleven = {"ICM": 0.461, "Disagreement": 0.524, "RND": 0.623, "APT": 0.661, "Proto": 0.567, "APS": 0.364}
    for method, mean in {**eleven, "CIC": 0.736, "MOSS": 0.806, "SMM": 0.423, "DIAYN": 0.367}.items():
        assert shares(RERUN[method], RERUN_TASKS).mean() == pytest.approx(mean, abs=6e-4)
    nnm = [shares(PAPER_12["NNM"], tasks_of(domain)).mean() for domain in ("walker", "quadruped", "jaco")]
    assert nnm == pytest.approx([0.915, 0.844, 0.809], abs=6e-4)
    assert set(TASKS_12) == set(EXPERTS) and set(TASKS_12) - set(RERUN_TASKS) == {"jaco_reach_top_right"}
    with pytest.raises(ConfigError, match="jaco_reach_top_right"):
        shares(RERUN["ICM"], TASKS_12)


def test_the_tables_printed_in_the_paper_are_the_ones_stored():
    assert str(PAPER_12["Disagreement"]["quadruped_jump"]) == "383 ± 265"
    assert str(RERUN["MOSS"]["quadruped_walk"]) == "635 ± 36"
    assert [task for task, bold in PAPER_BOLD.items() if bold != "NNM"] == ["quadruped_run"]
    for task, bold in PAPER_BOLD.items():
        assert PAPER_12[bold][task].score == max(column[task].score for column in PAPER_12.values())


# --- one frame, one pre-training


def test_only_the_longest_pretraining_of_a_domain_counts():
    runs = [
        tuning("walker_run", "NNM", 0.5),
        tuning("walker_run", "APT", 0.4, snapshot=500_000),
        tuning("jaco_reach_top_left", "APT", 0.3, snapshot=500_000),
        tuning("walker_run", "scratch", 0.1),
    ]
    found = compare_finetunings(runs)
    assert found.snapshots == {"walker": 2_000_000, "jaco": 500_000}
    assert found.raw(METHODS["APT"].name, "walker_run") == []
    assert found.raw(METHODS["APT"].name, "jaco_reach_top_left") and found.raw(METHODS["scratch"].name, "walker_run")
    assert found.notes == [
        "Left out: 1 run of apt-urlb on walker, fine-tuned from 500,000 frames: the table is of 2,000,000."
    ]
    assert is_nominal(found, ["walker_run"]) and not is_nominal(found, ["walker_run", "jaco_reach_top_left"])


def test_runs_are_read_at_the_shortest_ones_last_evaluation():
    runs = [
        tuning("walker_run", "NNM", 0.5),
        tuning("walker_run", "APT", 0.4, frames=60_000),
        tuning("walker_run", "scratch", 0.4, frames=20_000),
    ]
    found = compare_finetunings(runs)
    assert found.step == 60_000
    assert found.raw(METHODS["NNM"].name, "walker_run") == [0.25 * 796], "its evaluation at 50,000"
    assert "scratch-urlb on walker_run, seed 0, which stopped at frame 20,000 of 100,000" in found.notes[0]
    with pytest.raises(ConfigError, match="no run has a score"):
        compare_finetunings([])


def test_no_run_is_read_after_the_frames_of_urlb(tmp_path):
    """A control that learned on to 500,000 frames neither hides those that did not, nor counts with what it became."""
    marks = np.array([50_000, 100_000, 500_000])
    on = LearningCurve("walker_run", METHODS["scratch"].name, 0, marks, np.array([10.0, 20.0, 700.0]))
    late = LearningCurve("walker_flip", METHODS["scratch"].name, 0, np.array([150_000.0]), np.array([300.0]))
    found = compare_finetunings([on, late, tuning("walker_run", "NNM", 0.5)])
    assert found.step == 100_000
    assert found.raw(METHODS["scratch"].name, "walker_run") == [20.0]
    assert found.raw(METHODS["NNM"].name, "walker_run") == [0.5 * 796]
    assert found.notes == [
        "Left out: scratch-urlb on walker_flip, seed 0, which was first evaluated at frame 150,000, after 100,000."
    ]
    assert max(run.last_step for run in found.runs) == 100_000, "curves end there too"
    with pytest.raises(ConfigError, match="within its first 100,000 frames"):
        compare_finetunings([late])


# --- table 4


def test_table4_when_the_claims_hold():
    values = dict.fromkeys(RIVALS, 0.4) | {"scratch": 0.2, "NNM": 0.9}
    found = judge("table4", world(values))
    rows = rows_of(found)
    assert (rows["mean, NNM"].paper, rows["mean, NNM"].ours, rows["mean, NNM"].verdict) == ("0.856", "0.905", "PASS")
    assert (rows["mean, APT"].paper, rows["mean, APT"].rerun) == ("0.748", "0.661 (11 tasks)")
    for rival in ("scratch", *RIVALS):
        assert rows[f"mean: NNM above {rival}"].verdict == rows[f"mean, jaco: NNM above {rival}"].verdict == "PASS"
    best = rows["tasks in which NNM is best"]
    assert (best.ours, best.interval, best.verdict) == ("12 of 12", "[12, 12]", "PASS")
    run = rows["quadruped_run: NNM below APT"]
    assert (run.paper, run.verdict) == ("491 to 498", "FAIL"), "the paper has APT ahead there"
    assert rows["walker_run: APT"].rerun == "491 ± 18" and rows["walker_run: APT"].verdict is None
    assert rows["walker_run: NNM"].paper == "535 ± 9" and rows["walker_run: NNM"].verdict == "PASS"
    assert "scratch 0.205" in found.headline and "12 of 12 tasks" in found.headline
    assert any("Missing: NNM ensemble, NNM states" in word for word in found.words)


def test_table4_when_they_do_not_and_when_it_is_too_early():
    values = dict.fromkeys(RIVALS, 0.6) | {"scratch": 0.5, "NNM": 0.3}
    late, early = (rows_of(judge("table4", world(values, snapshot=mark))) for mark in (2_000_000, 500_000))
    assert late["mean, NNM"].verdict == late["walker_run: NNM"].verdict == "FAIL"
    assert early["mean, NNM"].verdict == early["walker_run: NNM"].verdict == "SHORT", "fewer frames may explain it"
    for rows in (late, early):
        assert rows["mean: NNM above scratch"].verdict == rows["tasks in which NNM is best"].verdict == "FAIL"
    one = rows_of(judge("table4", world(values, seeds=1)))
    assert {row.verdict for row in one.values()} <= {"SHORT", None}, "one seed has no interval"


def test_table4_from_one_domain_judges_that_domain():
    values = {"scratch": 0.2, "Disagreement": 0.4, "APT": 0.5, "NNM": 0.95, "NNM centered": 0.7}
    found = judge("table4", world(values, tasks_of("walker")))
    rows, words = rows_of(found), " ".join(found.words)
    assert (rows["mean, NNM, walker"].paper, rows["mean, NNM, walker"].verdict) == ("0.915", "PASS")
    assert rows["mean, walker: NNM above scratch"].verdict == "PASS"
    assert rows["mean, walker: NNM minus NNM centered"].verdict is None
    assert rows["tasks in which NNM is best of NNM, Disagreement, APT"].verdict == "SHORT"
    assert "Missing: 8 of 12 tasks (quadruped_jump" in words and "Missing: ICM, RND, APS, NNM ensemble" in words
    assert "walker 2,000,000" in words


def test_table4_from_a_part_of_a_domain_stays_open():
    runs = world({"APT": 0.5, "NNM": 0.95}, ["walker_run", "walker_stand"]) + world({"scratch": 0.1}, ["walker_run"])
    rows = rows_of(judge("table4", runs))
    assert rows["mean, APT, walker"].paper == f"0.838; here {np.mean([506 / 796, 933 / 984]):.3f}"
    assert rows["mean, walker: NNM above APT"].verdict == rows["mean, NNM, walker"].verdict == "SHORT"
    assert "mean, scratch, walker, 1 of them" in rows


def test_changed_settings_are_another_method():
    changed = world({"NNM": 0.9}, tasks_of("walker"), changes="agent.n_step=3")
    found = judge("table4", [*changed, *world({"APT": 0.5}, tasks_of("walker"))])
    assert rows_of(found)["mean, nnm-urlb agent.n_step=3, walker"].paper == "-"
    assert "nnm-urlb agent.n_step=3 does not count as NNM: its settings differ." in found.words
    assert not any("NNM above" in quantity for quantity in rows_of(found))


def test_several_environments_are_said_wherever_a_score_is(tmp_path):
    """URLB steps one: eight are shown beside the published scores, by name, and nothing is judged of them."""
    several = world({"NNM": 0.9}, tasks_of("walker"), changes="pool.num_envs=8")
    runs = [*several, *world({"APT": 0.5}, tasks_of("walker"))]
    found = judge("table4", runs)
    rows = rows_of(found)
    mean, task = rows["mean, NNM, 8 environments, walker"], rows["walker_run: NNM, 8 environments"]
    assert (mean.paper, mean.verdict) == ("0.915", None)
    assert (task.paper, task.ours[:3], task.verdict) == (str(PAPER_12["NNM"]["walker_run"]), "720", None)
    assert "NNM, 8 environments does not count as NNM: URLB steps one environment." in found.words
    assert not any("NNM above" in quantity for quantity in rows_of(found))

    figure = STUDIES.get("fig6").cls().conclude_from(runs, tmp_path)
    row = rows_of(figure)["walker_run: NNM, 8 environments"]
    assert (row.paper, row.verdict) == (str(PAPER_12["NNM"]["walker_run"]), None)
    assert "walker_run: NNM" not in rows_of(figure)
    assert "NNM, 8 environments" in (tmp_path / "curves.svg").read_text()
    with (tmp_path / "scores.csv").open() as file:
        assert {(line["preset"], line["environments"]) for line in csv.DictReader(file)} == {
            ("nnm-urlb", "8"), ("apt-urlb", "1"),
        }  # fmt: skip


def test_names_in_words():
    assert label_of(ArmName("nnm-urlb")) == "NNM"
    assert label_of(ArmName("nnm-urlb", "pool.num_envs=8")) == "NNM, 8 environments"
    both = ArmName("nnm-urlb", "agent.n_step=3 pool.num_envs=8 reward.n=4")
    assert label_of(both) == "nnm-urlb agent.n_step=3 reward.n=4, 8 environments"
    assert method_of(both) is None and method_of(ArmName("apt-urlb", "pool.num_envs=2")) is METHODS["APT"]


def test_small_sizes_decide_nothing(tmp_path):
    study = STUDIES.get("table4").cls()
    small = [
        tuning(run.task, "NNM", run.returns[-1] / EXPERTS[run.task], run.seed, preset=f"{run.name.preset}-small")
        for run in world({"APT": 0.1, "NNM": 0.9}, tasks_of("walker"))
    ]
    found = study.conclude_from(small, tmp_path)
    assert rows_of(found)["mean, walker: NNM above APT"].verdict == "SHORT"
    assert found.words[0].startswith("Laptop sizes")
    assert (tmp_path / "scores.png").read_bytes()[:4] == b"\x89PNG" and (tmp_path / "scores.csv").exists()


def test_small_sizes_with_changes_keep_their_name(tmp_path):
    """Changes are told beside the small preset; beside the full one they would hide how small it was."""
    runs = [
        tuning("walker_run", "NNM", 0.5, preset="nnm-urlb-small"),
        tuning("walker_run", "NNM", 0.4, preset="nnm-urlb-small", changes="agent.batch=16"),
        tuning("walker_run", "NNM", 0.3, preset="nnm-urlb-small", changes="pool.num_envs=8"),
    ]
    found = rows_of(STUDIES.get("table4").cls().conclude_from(runs, tmp_path))
    assert {"walker_run: NNM", "walker_run: NNM, 8 environments"} <= set(found)
    assert "walker_run: nnm-urlb-small agent.batch=16" in found
    rows = csv.DictReader((tmp_path / "scores.csv").read_text().splitlines())
    assert {row["preset"] for row in rows} == {"nnm-urlb-small"}


# --- figure 6


def test_fig6_judges_what_the_text_says(tmp_path):
    runs = world({"Disagreement": 0.3, "APT": 0.7, "NNM": 0.8}, TASKS)
    rows = rows_of(judge("fig6", runs))
    assert rows["all the way: NNM ahead of Disagreement"].verdict == "PASS"
    assert rows["all the way: APT ahead of Disagreement"].verdict == "PASS"
    assert (rows["all the way: NNM to APT"].ours, rows["all the way: NNM to APT"].verdict) == ("1.14×", "PASS")
    assert rows["result: NNM above APT"].verdict == "PASS"
    assert rows["walker_flip: NNM above APT"].paper == "825 to 653"
    area = area_under_curves(compare_finetunings(runs), "NNM", TASKS)
    assert area.shape == (2, 6) and area[0] == pytest.approx(0.6), "the mean of 0.4 and 0.8"
    part = rows_of(judge("fig6", [run for run in runs if run.task != "walker_run"]))
    assert part["result: NNM above APT"].verdict == "SHORT" and part["walker_flip: NNM above APT"].verdict == "PASS"
    none = judge("fig6", world({"APT": 0.5}, TASKS))
    assert "nothing to compare yet" in none.headline
    [png, _] = STUDIES.get("fig6").cls().draw(compare_finetunings(runs[:4]), tmp_path)
    assert png.read_bytes()[:4] == b"\x89PNG"


def test_comparable_is_a_ratio_near_one():
    assert [judge_ratio(each) for each in ((0.8, 1.25), (1.3, 1.5), (0.5, 0.79), (0.7, 1.0), None)] == [
        "PASS", "FAIL", "FAIL", "SHORT", "SHORT",
    ]  # fmt: skip


# --- the paper's own arithmetic


def test_recheck_says_what_follows_from_the_columns(capsys):
    assert main(["reproduce", "table4", "--recheck-paper", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    rows = {row["quantity"]: row for row in told["rows"]}
    assert rows["mean, NNM, 12 tasks"]["printed"] == "0.856"
    assert (rows["mean, APT, the rerun's 11 tasks"]["printed"], rows["mean, APT, the rerun's 11 tasks"]["rerun"]) == (
        "0.780", "0.661",
    )  # fmt: skip
    best = rows["tasks in which NNM is best of the six columns"]
    assert (best["printed"], best["verdict"]) == ("11 of 12", "PASS")
    beside = rows["the same with the rerun's CIC beside them"]
    assert (beside["printed"], beside["verdict"]) == ("8 of 12", "SHORT")
    assert told["figures"]["paper"]["NNM"]["quadruped"] == pytest.approx(0.844, abs=6e-4)
    words = " ".join(told["words"])
    for part in (
        "all but quadruped_run (APT 498 ± 32 to NNM's 491 ± 48)",
        "walker_run 535 to 535, walker_stand 968 to 961, jaco_reach_bottom_left 147 to 146",
        "whose ± are standard errors; over URLB's 10 seeds a standard deviation is 3.2 times as wide",
        "+0.119 for APT. NNM's lead over APT is +0.093: less than what separates two runs of APT",
        "quadruped_walk: APT 813 ± 10 in the paper, 464 ± 52 in the rerun",
        "walker_flip (825 to 799), quadruped_walk (890 to 866)",
    ):
        assert part in words


def test_table_from_a_file_of_the_command(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("x.csv").write_text("\n".join([",".join(EVALUATIONS.columns), LINE.format(100_000, 500), ""]))
    assert main(["reproduce", "table4", "--from", "x.csv", "--out", "out"]) == 0
    assert "Missing: 11 of 12 tasks" in " ".join(capsys.readouterr().out.split())
    assert {"scores.png", "scores.svg", "scores.csv", "table.csv", "words.txt"} == {
        path.name for path in Path("out").iterdir()
    }
    assert main(["reproduce", "table4", "--from", "nowhere.csv", "--out", "other"]) == 2
    assert not Path("other").exists()
