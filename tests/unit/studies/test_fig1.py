"""Figure 1: the measures by hand, the known numbers of the toy matrix, the sentences, the files."""

from __future__ import annotations

import csv
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from intrigue.studies.fig1 import Fig1Numbers, collect_findings, compute, draw, write_csv, write_verdicts
from intrigue.studies.fig1_numbers import CASES, MEASURES, SIZES, SPOILERS, equal_rows_value

QUARTER = SIZES.index(0.25)


@pytest.fixture(scope="module")
def numbers() -> Fig1Numbers:
    return compute(seed=3, draws=60)


def change(numbers: Fig1Numbers, case: str, spoiler: str, measure: str, step: int = QUARTER) -> float:
    return float(numbers.fold(case, spoiler, measure)[step].mean() - 1)


def test_measures_by_hand() -> None:
    # Rows (0, 0), (3, 4), (6, 8): distances² 25 and 100 from the first; column variances 6 and 32/3; one line through
    # the mean, whose deviations (∓3, ∓4) have one singular value √50.
    z = torch.tensor([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]], dtype=torch.float64)
    found = {name: float(measure(z)) for name, measure in MEASURES.items()}
    assert found["variance"] == pytest.approx((6 + 32 / 3) / 2)
    assert found["log_l2"] == pytest.approx(math.log(25) + math.log(100))
    assert found["log1p_l2"] == pytest.approx(math.log(26) + math.log(101))
    assert found["nuclear"] == pytest.approx(1 / math.sqrt(3))
    assert found["centered"] == pytest.approx(math.sqrt(50) / math.sqrt(2))


def test_lower_ends() -> None:
    assert equal_rows_value("nuclear") == pytest.approx(1 / math.sqrt(128))
    assert [equal_rows_value(name) for name in ("variance", "log1p_l2", "centered")] == [0.0, 0.0, 0.0]
    assert equal_rows_value("log_l2") == -math.inf


def test_shapes_and_starts(numbers: Fig1Numbers) -> None:
    assert numbers.sizes[0] == 0.0
    assert numbers.sizes[-1] == 1.0
    for case in CASES:
        for measure in MEASURES:
            first = numbers.values[case, "noise", measure][0]
            for spoiler in SPOILERS:
                assert numbers.values[case, spoiler, measure].shape == (len(SIZES), 60)
                assert np.array_equal(numbers.values[case, spoiler, measure][0], first)


def test_known_numbers_of_noise_around_a_shared_mean(numbers: Fig1Numbers) -> None:
    # Expected variance goes from 0.1² to 0.1² + 0.25²: +625 %. The ratio follows its closed form from s = 0.1 to 0.27.
    assert change(numbers, "shared", "noise", "variance") == pytest.approx(6.25, rel=0.05)

    def ratio(s: float) -> float:
        return (math.sqrt(5 + s**2) + 4 * s) / math.sqrt(5 * (1 + s**2))

    expected = ratio(math.hypot(0.1, 0.25)) / ratio(0.1) - 1
    assert expected == pytest.approx(0.23, abs=0.01)
    assert change(numbers, "shared", "noise", "nuclear") == pytest.approx(expected, rel=0.08)


def test_independent_rows_are_saturated(numbers: Fig1Numbers) -> None:
    assert abs(change(numbers, "independent", "noise", "nuclear")) < 0.001
    assert float(numbers.values["independent", "noise", "nuclear"][0].mean()) > 0.99 * math.sqrt(5 / 128)
    assert change(numbers, "independent", "noise", "variance") == pytest.approx(0.0625, rel=0.2)


def test_one_value_added_everywhere_moves_only_the_nuclear_ratio(numbers: Fig1Numbers) -> None:
    for measure in ("variance", "log_l2", "log1p_l2", "centered"):
        assert numbers.fold("shared", "shift", measure) == pytest.approx(np.ones((len(SIZES), 60)), abs=1e-6)
    assert change(numbers, "shared", "shift", "nuclear", step=-1) < -0.01


def test_outliers_touch_what_they_should(numbers: Fig1Numbers) -> None:
    # One of five rows gets variance 1 added: the population variance over rows grows by 4/25 on average.
    variance = numbers.values["shared", "outlier_row", "variance"]
    assert (variance[-1] - variance[0]).mean() == pytest.approx(4 / 25, rel=0.1)
    entry = numbers.values["shared", "outlier_entry", "variance"]
    assert (entry[-1] - entry[0]).mean() == pytest.approx(4 / 25 / 128, rel=0.6)


def test_working_range_runs_from_zero_to_one(numbers: Fig1Numbers) -> None:
    for measure in ("nuclear", "variance", "log1p_l2", "centered"):
        assert numbers.range_share("independent", "noise", measure)[0].mean() == pytest.approx(1.0)
        assert 0 < numbers.range_share("shared", "noise", measure)[0].mean() < 0.3
    assert np.isnan(numbers.range_share("shared", "noise", "log_l2")).all()


def test_ranking_starts_certain_and_fades(numbers: Fig1Numbers) -> None:
    for features in ("raw", "layernorm"):
        for measure in MEASURES:
            chance = numbers.ranking[features, measure]
            assert chance[0] > 0.99
            assert 0.4 < chance[-1] < 0.75


def test_same_seed_same_numbers() -> None:
    first, again, other = compute(1, 3), compute(1, 3), compute(2, 3)
    key = ("shared", "noise", "nuclear")
    assert np.array_equal(first.values[key], again.values[key])
    assert not np.array_equal(first.values[key], other.values[key])


def test_computing_leaves_the_thread_count_alone() -> None:
    before = torch.get_num_threads()
    compute(0, 2)
    assert torch.get_num_threads() == before


def test_findings(numbers: Fig1Numbers) -> None:
    assert {found.name: found.holds for found in collect_findings(numbers)} == {
        "fold_noise": True,
        "fold_outlier_row": True,
        "not_saturated": False,
        "range": False,
        "ranking": False,
        "shift": False,
    }


def test_words_carry_the_numbers(numbers: Fig1Numbers) -> None:
    words = write_verdicts(numbers)
    assert all(sentence.startswith(("Holds: ", "Does not hold: ")) for sentence in words)
    assert f"variance {change(numbers, 'shared', 'noise', 'variance'):+.0%}" in words[0]
    assert f"nuclear {change(numbers, 'shared', 'outlier_row', 'nuclear'):+.1%}" in words[1]


def test_verdict_follows_the_numbers(numbers: Fig1Numbers) -> None:
    swapped = {
        (case, spoiler, {"nuclear": "variance", "variance": "nuclear"}.get(measure, measure)): value
        for (case, spoiler, measure), value in numbers.values.items()
    }
    holds = {found.name: found.holds for found in collect_findings(replace(numbers, values=swapped))}
    assert not holds["fold_noise"]
    assert holds["shift"]
    better = {key: value + 0.2 * (key[1] == "nuclear") for key, value in numbers.ranking.items()}
    assert {found.name: found.holds for found in collect_findings(replace(numbers, ranking=better))}["ranking"]


def test_csv(numbers: Fig1Numbers, tmp_path: Path) -> None:
    with write_csv(numbers, tmp_path / "fig1.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(CASES) * len(SPOILERS) * len(MEASURES) * len(SIZES)
    wanted = {"case": "shared", "spoiler": "noise", "measure": "variance", "size": "0.25"}
    (row,) = [row for row in rows if wanted.items() <= row.items()]
    assert float(row["fold"]) == pytest.approx(1 + change(numbers, "shared", "noise", "variance"), rel=1e-5)
    assert float(row["fold_low"]) < float(row["fold"]) < float(row["fold_high"])
    assert {row["range_share"] for row in rows if row["measure"] == "log_l2"} == {""}


def test_pictures(numbers: Fig1Numbers, tmp_path: Path) -> None:
    paths = draw(numbers, tmp_path / "new" / "folder")
    assert sorted(path.name for path in paths) == ["fig1.png", "fig1.svg", "fig1_range.png", "fig1_range.svg"]
    for path in paths:
        start = path.read_bytes()[:8]
        assert start == b"\x89PNG\r\n\x1a\n" if path.suffix == ".png" else start.startswith(b"<?xml")
    again = draw(numbers, tmp_path / "again")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in paths]


def test_importing_the_study_loads_no_plotting_library() -> None:
    code = "import sys, intrigue.studies.fig1; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_layer_normalized_rows_take_the_variance_its_lead(numbers: Fig1Numbers) -> None:
    # With rows of one length, nothing but their angles is left to either measure.
    half = SIZES.index(0.5)
    for features, lowest, highest in (("raw", 0.05, 0.4), ("layernorm", -0.01, 0.01)):
        lead = numbers.ranking[features, "variance"][half] - numbers.ranking[features, "nuclear"][half]
        assert lowest < lead < highest
