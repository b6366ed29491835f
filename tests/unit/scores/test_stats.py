"""Statistics of per-seed values: numbers by hand, properties, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intrigue.scores.stats import (
    StatisticsError,
    bootstrap_interval,
    difference_interval,
    iqm,
    mean,
    median,
    probability_of_improvement,
    standard_error,
    std,
)

numbers = st.floats(-1e6, 1e6)
samples = st.lists(numbers, min_size=1, max_size=30)
CENTERS = [mean, median, iqm]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_values_by_hand() -> None:
    values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]
    assert mean(values) == 5.0
    assert median(values) == 4.5
    assert std(values) == pytest.approx(math.sqrt(32 / 7))
    assert standard_error(values) == pytest.approx(math.sqrt(32 / 7 / 8))
    assert iqm(values) == pytest.approx((4 + 4 + 5 + 5) / 4)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3.0], 3.0),
        ([1.0, 2.0, 6.0], 3.0),  # below four nothing is cut
        ([1.0, 2.0, 4.0, 100.0], 3.0),
        ([0.0, 1.0, 2.0, 3.0, 100.0], 2.0),  # ⌊5/4⌋ = 1 from each end
        ([-50.0, 0.0, 1.0, 2.0, 3.0, 4.0, 100.0], 2.0),
        ([-9.0, -9.0, 1.0, 3.0, 5.0, 7.0, 99.0, 99.0], 4.0),
    ],
)
def test_iqm_by_hand(values: list[float], expected: float) -> None:
    assert iqm(values) == pytest.approx(expected)


def test_iqm_pools_seeds_and_tasks() -> None:
    assert iqm(np.array([[100.0, 1.0], [2.0, -100.0]])) == pytest.approx(1.5)


def test_one_value_has_no_spread() -> None:
    assert mean([7.0]) == 7.0
    assert std([7.0]) is None
    assert standard_error([7.0]) is None
    assert bootstrap_interval([7.0], rng()) is None
    assert bootstrap_interval(np.array([[7.0, 8.0]]), rng()) is None
    assert difference_interval([7.0], [1.0, 2.0], rng()) is None
    assert difference_interval([1.0, 2.0], [7.0], rng()) is None


def test_improvement_by_hand() -> None:
    assert probability_of_improvement([3.0, 4.0], [1.0, 2.0]) == 1.0
    assert probability_of_improvement([1.0, 2.0], [3.0, 4.0]) == 0.0
    assert probability_of_improvement([1.0, 3.0], [2.0]) == 0.5
    assert probability_of_improvement([1.0, 2.0, 3.0], [2.0, 2.0]) == 0.5  # a tie counts half
    two_tasks = probability_of_improvement(np.array([[2.0, 1.0], [2.0, 3.0]]), np.array([[1.0, 2.0]]))
    assert two_tasks == pytest.approx((1.0 + 0.5) / 2)


def test_bootstrap_of_two_values_by_hand() -> None:
    # Means of two draws from {0, 1} are 0, 1/2, 1 with chances 1/4, 1/2, 1/4: the middle 40 % is 1/2 alone.
    assert bootstrap_interval([0.0, 1.0], rng()) == (0.0, 1.0)
    assert bootstrap_interval([0.0, 1.0], rng(), confidence=0.4) == (0.5, 0.5)


def test_bootstrap_matches_the_normal_interval_for_many_values() -> None:
    values = rng(1).normal(10.0, 2.0, size=400)
    error = standard_error(values)
    found = bootstrap_interval(values, rng())
    assert found is not None
    assert error is not None
    assert found == pytest.approx((values.mean() - 1.96 * error, values.mean() + 1.96 * error), abs=0.1 * error * 2)


def test_bootstrap_covers_the_truth_about_as_often_as_it_says() -> None:
    source = rng(3)
    hits = 0
    for _ in range(200):
        found = bootstrap_interval(source.normal(size=20), source, resamples=300)
        assert found is not None
        hits += found[0] <= 0.0 <= found[1]
    assert 0.87 <= hits / 200 <= 0.98  # a percentile interval of 20 values is known to be a little short of 0.95


def test_bootstrap_keeps_tasks_apart() -> None:
    # Each task is constant over seeds: redrawn within tasks nothing varies; mixed over tasks it would.
    values = np.array([[0.0, 10.0], [0.0, 10.0], [0.0, 10.0]])
    assert bootstrap_interval(values, rng()) == (5.0, 5.0)


def test_bootstrap_uses_the_statistic_given() -> None:
    values = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1000.0]
    of_mean, of_median = bootstrap_interval(values, rng()), bootstrap_interval(values, rng(), statistic=median)
    assert of_mean is not None
    assert of_mean[1] >= 250.0
    assert of_median == (0.0, 0.0)


def test_difference_interval() -> None:
    assert difference_interval([5.0, 5.0, 5.0], [2.0, 2.0], rng()) == (3.0, 3.0)
    clear = difference_interval([10.0, 11.0, 12.0, 13.0], [1.0, 2.0, 3.0], rng())
    assert clear is not None
    assert 6.0 < clear[0] < 9.5 < clear[1] < 13.0
    unclear = difference_interval([1.0, 5.0, 9.0], [2.0, 5.0, 8.0], rng())
    assert unclear is not None
    assert unclear[0] < 0 < unclear[1]


@given(samples)
@settings(deadline=None)
def test_centers_stay_between_the_extremes(values: list[float]) -> None:
    room = 1e-9 * (1 + max(map(abs, values)))
    for center in CENTERS:
        assert min(values) - room <= center(values) <= max(values) + room


@given(samples, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_order_does_not_matter(values: list[float], shuffler: object) -> None:
    shuffled = list(values)
    shuffler.shuffle(shuffled)  # type: ignore[attr-defined]
    for center in CENTERS:
        assert center(shuffled) == pytest.approx(center(values), rel=1e-9, abs=1e-6)


@given(st.lists(numbers, min_size=2, max_size=12), st.integers(0, 2**31))
@settings(max_examples=25, deadline=None)
def test_intervals_repeat_with_the_seed_and_stay_in_range(values: list[float], seed: int) -> None:
    first, again = (bootstrap_interval(values, rng(seed), statistic=iqm, resamples=50) for _ in range(2))
    assert first is not None
    assert first == again
    room = 1e-9 * (1 + max(map(abs, values)))
    assert min(values) - room <= first[0] <= first[1] <= max(values) + room


@given(samples, samples)
@settings(deadline=None)
def test_improvements_of_both_sides_add_to_one(ours: list[float], theirs: list[float]) -> None:
    total = probability_of_improvement(ours, theirs) + probability_of_improvement(theirs, ours)
    assert total == pytest.approx(1.0)


def test_another_seed_gives_another_interval() -> None:
    values = rng(5).normal(size=10)
    assert bootstrap_interval(values, rng(0)) != bootstrap_interval(values, rng(1))


@pytest.mark.parametrize("bad", [[], [[]], 3.0, [[[1.0]]], [1.0, math.nan], [math.inf]])
def test_refused_values(bad: object) -> None:
    for function in (mean, median, std, standard_error, iqm):
        with pytest.raises(StatisticsError):
            function(bad)
    with pytest.raises(StatisticsError):
        bootstrap_interval(bad, rng())
    with pytest.raises(StatisticsError):
        probability_of_improvement(bad, [1.0])


def test_refused_comparisons_and_confidence() -> None:
    with pytest.raises(StatisticsError, match="the same tasks"):
        probability_of_improvement(np.ones((2, 3)), np.ones((2, 4)))
    with pytest.raises(StatisticsError, match="one task at a time"):
        std(np.ones((2, 3)))
    with pytest.raises(StatisticsError, match="confidence"):
        bootstrap_interval([1.0, 2.0], rng(), confidence=1.0)
