"""Atari studies: curves out of run folders, tables out of curves, verdicts by their rules; on made-up runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from intrigue.cli import main
from intrigue.config.run import resolve
from intrigue.errors import ConfigError
from intrigue.presets import preset_layer
from intrigue.run.folder import RunFolder
from intrigue.scores import ATARI_57, PAPER_26
from intrigue.studies.atari.paper import GAMES_26
from intrigue.studies.atari.study import ATARI, METHODS, NOMINAL_STEPS, Variant
from intrigue.studies.common.arm_names import ArmName, name_run
from intrigue.studies.common.results import compare_runs
from intrigue.studies.common.run_records import CURVES, LearningCurve, export_curves, gather_records, read_records
from intrigue.studies.common.verdicts import judge_order, judge_value
from intrigue.studies.registry import STUDIES
from report_folders import write_run
from study_rows import rows_of, table_of


def curve(
    game: str, preset: str, score: float, seed: int = 0, steps: int = NOMINAL_STEPS, changes: str = ""
) -> LearningCurve:
    """A run that stands at a score from half of its steps on."""
    points = np.array([steps / 4, steps / 2, steps])
    return LearningCurve(game, ArmName(preset, changes), seed, points, np.array([np.nan, score, score]))


def at_human(game: str, share: float) -> float:
    scale = ATARI_57[game]
    return scale.random + share * (scale.human - scale.random)


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch):
    """Differences here are certain or nil; a tenth of the resamples says so as well."""
    monkeypatch.setattr("intrigue.scores.stats.RESAMPLES", 200)


def compare_on_atari(curves):
    return compare_runs(curves, ATARI)


def judge(study: str, curves: list[LearningCurve]):
    """The table without its picture, which takes longer than all the rest."""
    return STUDIES.get(study).cls().judge(compare_on_atari(curves))


# --- curves out of folders


@pytest.fixture
def folder(tmp_path):
    """A run with 150 episodes of return 1, 2, …, one at each tenth step, and a row of metrics every 100 steps."""
    config = resolve(preset_layer("nnm-atari"), {"env": "atari/Gopher", "seed": 3, "steps": 2_000})
    return write_run(
        tmp_path / "run", config, episodes=[(10 * n, float(n)) for n in range(1, 151)], bonus=[0.1] * 20, frames=4,
        seconds=10.0,
    )  # fmt: skip


def test_export_has_the_mean_of_the_last_100_episodes(folder, tmp_path):
    path = export_curves([folder], tmp_path / "deep" / "curves.csv", every=300)
    rows = table_of(path)
    assert list(rows[0]) == list(CURVES.columns)
    assert [int(row["step"]) for row in rows] == [300, 600, 900, 1200, 1500, 1800, 2000], "and the last, always"
    first, third, last = rows[0], rows[2], rows[-1]
    assert (first["game"], first["preset"], first["changes"]) == ("Gopher", "nnm-atari", "")
    assert (first["reward"], first["seed"], first["frames"]) == ("nnm", "3", "1200")
    # By step 300, episodes 1 to 30; by 900, 1 to 90; at the end the last hundred of 150.
    assert float(first["return_mean_100"]) == 15.5 and first["episodes"] == "30"
    assert float(third["return_mean_100"]) == 45.5
    assert float(last["return_mean_100"]) == np.mean(range(51, 151)) and last["episodes"] == "150"
    assert float(last["wall_seconds"]) == 10.0 and float(last["sps"]) == 200.0, "2,000 steps in 10 seconds"


def test_export_and_read_agree(folder, tmp_path):
    (found,) = read_records(export_curves([folder], tmp_path / "c.csv", every=500), CURVES)
    assert (found.task, found.name, found.seed, found.last_step) == ("Gopher", ArmName("nnm-atari"), 3, 2_000)
    assert found.at(999) == 25.5 and found.at(1_000) == np.mean(range(1, 101)) and np.isnan(found.at(499))
    assert gather_records([tmp_path], CURVES)[0].last_step == 2_000, "a folder of runs is as good as its file"
    with pytest.raises(ConfigError, match="each run once"):
        gather_records([tmp_path, tmp_path / "c.csv"], CURVES)


def test_before_the_first_episode_there_is_no_score(tmp_path):
    config = resolve(preset_layer("icm-atari"), {"env": "atari/Pong", "steps": 100})
    run = write_run(tmp_path / "run", config, episodes=[(90, -21.0)], bonus=[0.1] * 10, finished=False)
    (found,) = read_records(export_curves([run], tmp_path / "c.csv", every=10), CURVES)
    assert np.isnan(found.at(80)) and found.at(90) == -21


def test_a_run_that_has_only_begun_adds_nothing(folder, tmp_path):
    begun = write_run(tmp_path / "begun", resolve(preset_layer("icm-atari"), {"steps": 100}), bonus=[], step=1)
    assert [each.seed for each in read_records(export_curves([begun, folder], tmp_path / "c.csv"), CURVES)] == [3]


def test_only_atari_runs_are_exported(tmp_path):
    run = write_run(tmp_path / "run", resolve({"env": "rooms", "steps": 100}))
    with pytest.raises(ConfigError, match="atari/<Game>"):
        export_curves([run], tmp_path / "c.csv")


@pytest.mark.parametrize(
    ("preset", "changes", "expected"),
    [
        ("nnm-atari", {}, "nnm-atari"),
        ("nnm-centered-atari", {"seed": 4, "steps": 9, "pool.workers": 2}, "nnm-centered-atari"),
        ("icm-atari", {"curiosity.feature_noise": 0.25}, "icm-atari curiosity.feature_noise=0.25"),
        ("nnm-atari-small", {}, "nnm-atari-small"),
        ("rnd-atari-int-ext", {}, "rnd-atari-int-ext"),
        ("nnm-atari", {"env.protocol": "rnd"}, "nnm-atari env.protocol=rnd"),
    ],
)
def test_runs_are_named_by_the_nearest_preset(preset, changes, expected):
    config = resolve(preset_layer(preset), {"env": "atari/Krull"}, changes).to_json()
    assert str(name_run(config)) == expected
    if not set(changes) & {"seed", "env.protocol"}:
        assert str(Variant(preset, changes).name) == expected, "a study names its arms as their runs are named"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Gopher,nnm-atari,0,oops,1", "line 3"),
        ("Gofer,nnm-atari,0,30,1", "Gopher"),
        ("Gopher,nnm-atari,0,20,1", "rising steps"),
    ],
)
def test_damaged_files_are_refused_by_line(tmp_path, line, message):
    path = tmp_path / "c.csv"
    path.write_text(f"game,preset,seed,step,return_mean_100\nGopher,nnm-atari,0,20,1\n{line}\n")
    with pytest.raises(ConfigError, match=message):
        read_records(path, CURVES)
    path.write_text("game,seed\nGopher,0\n")
    with pytest.raises(ConfigError, match="preset, step, return_mean_100"):
        read_records(path, CURVES)


# --- scores out of curves


def test_runs_are_compared_at_the_shortest_ones_last_step():
    long = LearningCurve("Pong", ArmName("nnm-atari"), 0, np.array([10.0, 20.0, 30.0]), np.array([1.0, 2.0, 3.0]))
    short = LearningCurve("Pong", ArmName("icm-atari"), 0, np.array([10.0, 20.0]), np.array([5.0, 6.0]))
    dead = LearningCurve("Pong", ArmName("icm-atari"), 1, np.array([10.0]), np.array([9.0]))
    found = compare_on_atari([long, short, dead])
    assert found.step == 20
    assert found.raw(ArmName("nnm-atari"), "Pong") == [2.0] and found.raw(ArmName("icm-atari"), "Pong") == [6.0]
    assert len(found.notes) == 1 and "seed 1" in found.notes[0] and "step 10 of 30" in found.notes[0]


def test_a_run_without_a_score_is_named_and_left_out():
    silent = LearningCurve("Pong", ArmName("nnm-atari"), 0, np.array([10.0]), np.array([np.nan]))
    found = compare_on_atari([silent, curve("Pong", "icm-atari", 1.0, steps=10)])
    assert ArmName("nnm-atari") not in found.scores and "no episode had finished" in found.notes[0]
    with pytest.raises(ConfigError, match="no run has a score"):
        compare_on_atari([silent])
    with pytest.raises(ConfigError, match="no run has a score"):
        compare_on_atari([])


def test_small_sizes_are_only_compared_among_themselves():
    alone = compare_on_atari([curve("Pong", "nnm-atari-small", 1.0)])
    assert alone.small and alone.raw(ArmName("nnm-atari"), "Pong") == [1.0]
    mixed = compare_on_atari([curve("Pong", "nnm-atari-small", 1.0), curve("Pong", "nnm-atari", 2.0)])
    assert not mixed.small and mixed.raw(ArmName("nnm-atari"), "Pong") == [2.0]


def test_small_sizes_decide_nothing(tmp_path):
    levels = {"nnm-atari": 10.0, "disagreement-atari": 2.0, "icm-atari": 2.0}
    curves = [curve("Breakout", preset, level, seed) for preset, level in levels.items() for seed in range(2)]
    small = [replace(each, name=ArmName(each.name.preset + "-small")) for each in curves]
    quantity = "Breakout: NNM above Disagreement"
    study = STUDIES.get("table2").cls()
    assert rows_of(study.conclude_from(curves, tmp_path))[quantity].verdict == "PASS"
    assert rows_of(study.conclude_from(small, tmp_path))[quantity].verdict == "SHORT"


def test_rules_of_judgement():
    assert [judge_order(each) for each in ((0.1, 1), (-1, -0.1), (-1, 1), None)] == ["PASS", "FAIL", "SHORT", "SHORT"]
    assert judge_order((2, 3), above=2) == "SHORT" and judge_order((2.1, 3), above=2) == "PASS"
    assert judge_value((0.5, 1.0), 1.0, nominal=False) == "PASS" and judge_value((2, 3), 1.0, nominal=True) == "PASS"
    assert (
        judge_value((0.5, 0.9), 1.0, nominal=True) == "FAIL" and judge_value((0.5, 0.9), 1.0, nominal=False) == "SHORT"
    )
    assert judge_value(None, 0.0, nominal=True) == "SHORT"


# --- tables


def all_games(shares: dict[str, float], seeds: int = 2, steps: int = NOMINAL_STEPS) -> list[LearningCurve]:
    """Every game of Table 2 at a share of the human score, seeds a thousandth of it apart."""
    return [
        curve(game, METHODS[label].preset, at_human(game, share + seed / 1_000), seed, steps)
        for game in GAMES_26
        for label, share in shares.items()
        for seed in range(seeds)
    ]


def test_table2_when_the_claims_hold(tmp_path):
    rows = rows_of(judge("table2", all_games({"Disagreement": 0.45, "ICM": 0.5, "NNM": 1.1})))
    assert rows["mean HNS, NNM"].ours == "1.101" and rows["mean HNS, NNM"].verdict == "PASS"
    assert rows["mean HNS, NNM"].paper == "1.09" and rows["mean HNS, NNM"].recomputed == "1.031"
    assert rows["mean HNS, ICM"].verdict == "FAIL", "0.50 after all the steps does not reach 0.565"
    assert rows["median HNS, Disagreement"].recomputed == "0.138" and rows["IQM HNS, ICM"].recomputed == "0.161"
    for rival in ("Disagreement", "ICM"):
        assert rows[f"mean HNS: NNM above {rival}"].verdict == "PASS"
        assert rows[f"mean HNS: NNM at least twice {rival}"].verdict == "PASS"
    assert rows["superhuman games, NNM"].ours == "26 of 26"
    assert rows["games in which NNM is best: most"].verdict == "PASS"
    assert rows["BankHeist: NNM below Disagreement"].verdict == "FAIL", "the paper prints 52.3 to 292"
    assert rows["Breakout: NNM above Disagreement"].paper == "164 to 55.5"


def test_table2_when_they_do_not_and_when_it_is_too_early(tmp_path):
    shares = {"Disagreement": 0.6, "ICM": 0.5, "NNM": 0.7}
    late = rows_of(judge("table2", all_games(shares)))
    assert late["mean HNS, NNM"].verdict == "FAIL"
    assert late["mean HNS: NNM above Disagreement"].verdict == "PASS"
    assert late["mean HNS: NNM at least twice Disagreement"].verdict == "FAIL"
    early = rows_of(judge("table2", all_games(shares, steps=1_000_000)))
    assert early["mean HNS, NNM"].verdict == "SHORT", "a value not reached yet"
    assert early["mean HNS: NNM at least twice Disagreement"].verdict == "FAIL", "an order is judged where it stands"
    one = rows_of(judge("table2", all_games(shares, seeds=1)))
    assert {row.verdict for row in one.values()} <= {"SHORT", None}
    assert all(row.interval == "-" for row in one.values())


def test_table2_from_a_part_of_the_data_says_what_is_missing(tmp_path):
    curves = [
        curve(game, METHODS[label].preset, at_human(game, share), seed, steps=10_000_000)
        for game in ("Breakout", "Gopher")
        for label, share in {"Disagreement": 0.2, "NNM": 0.1}.items()
        for seed in range(2)
    ]
    curves.append(curve("Breakout", "nnm-centered-atari", at_human("Breakout", 0.4), steps=10_000_000))
    found = judge("table2", curves)
    rows, words = rows_of(found), " ".join(found.words)
    here = np.mean([(row.scores["nnm"] - row.printed.random) / (row.printed.human - row.printed.random)
                    for row in (PAPER_26["Breakout"], PAPER_26["Gopher"])])  # fmt: skip
    assert rows["mean HNS, NNM"].recomputed == f"1.031; here {here:.3f}"
    assert rows["mean HNS, NNM"].verdict == "SHORT"
    assert rows["mean HNS: NNM above Disagreement"].verdict == "SHORT", "two games are not the paper's 26"
    assert rows["Gopher: NNM above Disagreement"].verdict == "FAIL", "a game can be judged by itself"
    assert rows["mean HNS, nnm-centered-atari, 1 games"].ours == "0.400"
    assert "Missing: 24 of 26 games" in words and "Missing: icm-atari on Breakout, Gopher." in words
    assert "10,000,000 (0.1 of the nominal 100,000,000)" in words


def test_table2_without_the_papers_methods_only_measures(tmp_path):
    found = judge("table2", [curve("Pong", "rnd-atari", 1.0), curve("Pong", "random-atari", -20.0)])
    assert "nothing to compare yet" in found.headline
    assert {row.verdict for row in found.rows} == {None} and rows_of(found)["Pong: rnd-atari"].ours == "1.00"
    only = judge("table2", [curve("Pong", "nnm-atari", 1.0)])
    changed = judge("table2", [curve("Pong", "nnm-atari", 1.0, changes="reward.n=3")])
    assert "nnm-atari reward.n=3 does not count as nnm-atari: its settings differ." in changed.words
    assert "NNM 0.61" in only.headline and "above" not in "".join(rows_of(only))


def test_table3_claims_nothing_recomputed(tmp_path):
    curves = [curve("Venture", name.preset, 100.0 + n) for n, name in enumerate(METHODS.values())]
    rows = rows_of(judge("table3", curves))
    assert rows["mean HNS, NNM"].paper == "0.86" and rows["mean HNS, NNM"].recomputed == "-"
    assert rows["Venture: NNM to ICM"].verdict is None, "the paper prints no score of that game"


def test_fig4_judges_what_the_text_says(tmp_path):
    levels = {"nnm-atari": 1000.0, "disagreement-atari": 300.0, "icm-atari": 400.0, "rnd-atari": 100.0}
    games = ("Gopher", "KungFuMaster", "Breakout", "Jamesbond")
    curves = [
        curve(game, preset, level * (0.6 if game == "Gopher" and preset == "nnm-atari" else 1) + seed, seed)
        for game in games
        for preset, level in levels.items()
        for seed in range(2)
    ]
    found = judge("fig4", curves)
    rows = rows_of(found)
    assert rows["KungFuMaster: NNM more than twice the best other"].verdict == "PASS"
    assert rows["Gopher: NNM more than twice the best other"].verdict == "FAIL", "600 to 400"
    assert rows["Gopher: NNM above the best other"].verdict == "PASS"
    assert "icm-atari" in rows["Gopher: NNM above the best other"].ours, "the best other, not the last"
    assert rows["games in which NNM is ahead: most of 6"].verdict == "PASS", "four of six, whatever the two missing say"
    assert "Missing: 2 of 6 games (Krull, UpNDown)." in found.words


def test_fig5_judges_score_and_spread(tmp_path):
    spreads = {"nnm-atari": 1.0, "disagreement-atari": 30.0, "icm-atari": 40.0, "rnd-atari": 50.0}
    curves = [
        curve("Breakout", f"{preset}-int-ext", 200 + spread * (seed - 2), seed)
        for preset, spread in spreads.items()
        for seed in range(5)
    ]
    rows = rows_of(judge("fig5", curves))
    assert rows["Breakout: NNM's spread over seeds below the smallest other"].verdict == "PASS"
    assert rows["Breakout: NNM's spread over seeds below the smallest other"].ours == "1.58 to 47.43"
    assert rows["Breakout: NNM above the best other"].verdict == "SHORT", "all means are equal"


def test_fig7_judges_the_gap(tmp_path):
    noise = "curiosity.feature_noise=0.25"
    gaps = {"disagreement-atari": -20.0, "icm-atari": -5.0, "nnm-atari": 10.0}
    curves = [
        curve(game, preset, 100 + gap * bool(changes) + seed, seed, changes=changes)
        for game in ("Jamesbond", "Breakout")
        for preset, gap in gaps.items()
        for changes in ("", noise)
        for seed in range(2)
    ]
    found = judge("fig7", curves)
    rows = rows_of(found)
    assert rows["Breakout: Disagreement with absolute noise"].verdict == "PASS"
    assert rows["Breakout: NNM with absolute noise"].verdict == "PASS", "it gains, as the text says of two games"
    assert rows["Jamesbond: NNM with absolute noise"].verdict == "FAIL", "the text says it loses there"
    assert rows["Jamesbond: ICM with absolute noise"].verdict is None
    assert rows["Jamesbond: NNM with absolute noise"].ours.startswith("+10.00 (+10%)")
    assert not any("relative" in quantity for quantity in rows), "not in the data"
    assert found.headline == "Lower with noise of 0.25: Disagreement in 2 of 2; ICM in 2 of 2; NNM in 0 of 2"


# --- the command


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fig1", "--recheck-paper"], "Accepted for: table2, table3, table4."),
        (["quickstart", "--from", "x.csv"], "Accepted for: fig4, fig5, fig6, fig7, table2, table3, table4."),
        (["table2", "--from", "nowhere.csv"], "nowhere.csv cannot be read"),
        (["table2", "--from", "x.csv", "--recheck-paper"], "Drop one"),
    ],
)
def test_wrong_use_is_explained(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_table_from_files_of_the_command(capsys, tmp_path, monkeypatch, folder):
    monkeypatch.chdir(tmp_path)
    export_curves([folder], "one.csv")
    assert RunFolder(folder).config.exists()
    assert main(["reproduce", "table2", "--from", "one.csv", "--out", "out"]) == 0
    printed = capsys.readouterr().out
    assert "Missing: 25 of 26 games" in " ".join(printed.split())
    assert {"curves.png", "curves.svg", "scores.csv", "table.csv", "words.txt"} == {
        path.name for path in (tmp_path / "out").iterdir()
    }
