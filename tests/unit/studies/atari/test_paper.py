"""The paper's own Atari arithmetic computed again, its plans, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from intrigue.cli import main
from intrigue.config.run import resolve
from intrigue.studies.atari.recheck import recheck_table2, recheck_table3
from intrigue.studies.atari.study import METHODS, NOMINAL_STEPS, SMOKE, Variant, layer_of
from intrigue.studies.engine import make_plan
from intrigue.studies.registry import STUDIES
from places import ROOT
from report_folders import write_run
from study_rows import rows_of, table_of

ATARI = ("fig4", "fig5", "fig7", "table2", "table3")


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch):
    """Differences here are certain or nil; a tenth of the resamples says so as well."""
    monkeypatch.setattr("intrigue.scores.stats.RESAMPLES", 200)


# --- plans


@pytest.mark.parametrize("study", ATARI)
def test_every_plan_is_within_its_budget(study, tmp_path):
    plan = STUDIES.get(study).cls()
    for level, budget in plan.budgets.items():
        arms = [arm for arm in plan.arms() if arm.level == level]
        variants = len(plan.variants) - len(plan.levels[level].skipped)
        assert len(arms) == len({arm.label for arm in arms}) == len(plan.levels[level].games) * variants
        config = arms[-1].config(budget, 0)
        assert config.pool.num_envs == (8 if level == "smoke" else 128)
        assert budget.jobs == 1, "a run takes every core"
        if level == "hour":
            total = len(arms) * budget.seeds * budget.steps
            assert 0.9 * 54e6 < total <= 54.5e6, "an hour at 15,000 steps a second"
    assert plan.levels["smoke"].games == SMOKE.games, "of others no episode ends so soon"
    assert (plan.budgets["full"].steps, plan.budgets["full"].seeds) == (NOMINAL_STEPS, 3)
    jobs = make_plan(plan, plan.budgets["smoke"], tmp_path)
    assert 3 <= len({job.folder for job in jobs}) == len(jobs) <= 6, "one game, one seed, no other level"


def test_noise_is_the_only_thing_that_differs():
    plain = resolve(layer_of(Variant("nnm-atari"), "Gopher", small=False)).to_json()
    noisy = resolve(layer_of(Variant("nnm-atari", {"curiosity.feature_noise": 0.25}), "Gopher", small=False)).to_json()
    assert noisy["curiosity"].pop("feature_noise") == 0.25 and plain["curiosity"].pop("feature_noise") == 0
    assert noisy == plain


def test_conclude_reads_the_runs_of_the_plan(tmp_path):
    """The whole way from a plan's run folders to its table, without training."""
    plan = STUDIES.get("table2").cls()
    budget = plan.budgets["smoke"]
    runs: dict[str, list[Path]] = {}
    for place, job in enumerate(make_plan(plan, budget, tmp_path)):
        config = job.arm.config(budget, job.seed)
        runs.setdefault(job.arm.label, []).append(write_run(job.folder, config, episodes=[(1_000, float(place))]))
    missing = next(iter(runs.values()))
    missing.append(tmp_path / "never-started")
    found = plan.conclude(runs, budget, tmp_path)
    rows = rows_of(found)
    assert rows["Breakout: NNM above Disagreement"].ours == "2.00 to 0.00"
    assert found.words[0].startswith("Laptop sizes")
    scores = {row["preset"]: row for row in table_of(tmp_path / "scores.csv")}
    assert float(scores["nnm-atari"]["score"]) == 2 and float(scores["nnm-atari"]["hns"]) == pytest.approx(
        0.3 / 28.8, rel=1e-5
    )
    assert (tmp_path / "curves.png").read_bytes()[:4] == b"\x89PNG"
    exported = table_of(tmp_path / "curves.csv")
    assert {row["preset"] for row in exported} == {f"{name.preset}-small" for name in METHODS.values()}


# --- the paper's own arithmetic


def test_recheck_says_what_is_wrong():
    found = recheck_table2()
    rows, words = rows_of(found), " ".join(found.words)
    assert (rows["mean HNS, ICM"].printed, rows["mean HNS, ICM"].recomputed) == ("0.625", "0.565")
    assert (rows["superhuman games, Disagreement"].printed, rows["superhuman games, Disagreement"].recomputed) == (
        "5",
        "4",
    )
    assert rows["mean HNS, NNM, without Jamesbond, Breakout, Krull, Gopher"].recomputed == "0.197"
    assert [row.verdict for row in found.rows if row.verdict] == ["FAIL"] * 4 + ["FAIL", "PASS", "FAIL"]
    for part in (
        "DemonAttack: printed random 107805.0 and human 35829.4, right 152.1 and 1971.0",
        "CrazyClimber: printed random 10780.5 and human 23829.4, right 10780.5 and 35829.4",
        "+0.058, +0.056, +0.058",
        "follows from neither",
        "CrazyClimber counts only under the printed constant",
        "ICM is superhuman in 5 games, not 4",
        "164.0 beside ICM's 175.5",
        "2.46 times Disagreement's and 1.82 times ICM's",
        "Jamesbond alone is 41% of NNM's mean, with Breakout 62%",
    ):
        assert part in words, part
    assert "by median and IQM it is the lowest of the three" in found.headline


def test_recheck_of_table3_stays_with_what_is_printed():
    found = recheck_table3()
    rows = rows_of(found)
    # (57 · 0.86 − 26 · 1.09)/31
    assert rows["mean HNS, NNM, the other 31 games"].printed == "0.67"
    assert rows["superhuman, ICM, the other 31 games"].printed == "4"
    assert "65% over Disagreement and 59% over ICM" in " ".join(found.words)
    assert not any(row.verdict for row in found.rows)


def test_recheck_from_the_command_line(capsys, tmp_path):
    assert main(["reproduce", "table2", "--recheck-paper", "--json", "--out", str(tmp_path / "out")]) == 0
    fields = json.loads(capsys.readouterr().out)
    assert fields["figures"]["NNM"]["right_constants"]["mean"] == pytest.approx(1.0311, abs=1e-4)
    assert fields["figures"]["ICM"]["printed_constants"]["superhuman"] == 5
    assert (tmp_path / "out" / "table.csv").read_text().startswith("quantity,paper,as printed,corrected,verdict\n")
    assert not (tmp_path / "out" / "runs").exists()


def test_the_documentation_quotes_what_is_computed(monkeypatch):
    monkeypatch.undo()  # the intervals quoted are of all resamples
    page = (ROOT / "docs" / "studies.md").read_text()
    flat = " ".join(page.split())
    found = recheck_table2()
    for sentence in found.words:
        assert " ".join(sentence.split()) in flat, sentence
    rows = rows_of(found)
    for start, quantity in {
        "median, corrected": "median HNS, {}",
        "IQM, corrected": "IQM HNS, {}",
        "mean without Jamesbond": "mean HNS, {}, without Jamesbond",
        "… nor Breakout": "mean HNS, {}, without Jamesbond, Breakout",
        "… nor Krull, Gopher": "mean HNS, {}, without Jamesbond, Breakout, Krull, Gopher",
    }.items():
        cells = " | ".join(rows[quantity.format(method)].recomputed for method in METHODS)
        assert f"| {start} | {cells} |" in page
    for start, field in {"as printed": "printed", "corrected": "recomputed"}.items():
        pairs = [
            f"{getattr(rows[f'mean HNS, {method}'], field)}, {getattr(rows[f'superhuman games, {method}'], field)}"
            for method in METHODS
        ]
        assert f"| {start} | {' | '.join(pairs)} |" in page
