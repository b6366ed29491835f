"""Scores: constants against what their sources say, the paper's table against what it prints, intervals that repeat."""

from __future__ import annotations

import numpy as np
import pytest

from intrigue.envs.atari.games import FIFTY_SEVEN, game_name
from intrigue.errors import ConfigError
from intrigue.scores import (
    ATARI_57,
    PAPER_26,
    PAPER_COLUMNS,
    PRINTED,
    above_human,
    bootstrap_interval,
    compute_aggregates,
    difference_interval,
    iqm,
    joint_interval,
    mean,
    median,
    normalised,
    stats,
    superhuman,
)

# The check of the paper's Table 2, computed apart from this code: mean and superhuman under the printed constants, then
# mean, superhuman, median and IQM under the right ones, and the mean without the games that carry it.
CHECKED = {
    "disagreement": (0.510, 5, 0.420, 4, 0.138, 0.184, (0.342, 0.279, 0.206)),
    "icm": (0.625, 5, 0.565, 5, 0.135, 0.161, (0.492, 0.261, 0.172)),
    "nnm": (1.086, 5, 1.031, 5, 0.120, 0.154, (0.630, 0.422, 0.197)),
}
CARRIERS = (("Jamesbond",), ("Jamesbond", "Breakout"), ("Jamesbond", "Breakout", "Krull", "Gopher"))


def test_all_57_games_by_our_names():
    assert list(ATARI_57) == [game_name(each) for each in sorted(FIFTY_SEVEN)]
    assert all(scale.human > scale.random for scale in ATARI_57.values())
    assert ATARI_57["DemonAttack"].random == 152.1 and ATARI_57["DemonAttack"].human == 1971.0
    assert ATARI_57["Skiing"].random == -17098.1 and ATARI_57["Skiing"].human == -4336.9
    # The columns' sums in dqn_zoo's table: one digit changed anywhere shows.
    assert sum(scale.random for scale in ATARI_57.values()) == pytest.approx(50_864.9)
    assert sum(scale.human for scale in ATARI_57.values()) == pytest.approx(606_494.0)


def test_the_papers_rows_are_as_printed_with_two_corrupt_ones():
    assert len(PAPER_26) == 26 and set(PAPER_26) <= set(ATARI_57)
    assert {game for game in PAPER_26 if PRINTED[game] != ATARI_57[game]} == {"DemonAttack", "CrazyClimber"}
    assert (PRINTED["DemonAttack"].random, PRINTED["DemonAttack"].human) == (107805.0, 35829.4)
    assert PRINTED["CrazyClimber"].human == 23829.4
    assert PAPER_26["Breakout"].scores == {"disagreement": 55.5, "icm": 175.5, "nnm": 164.0}
    assert PAPER_26["PrivateEye"].scores["icm"] == -500.0
    assert sum(row.bold == "nnm" for row in PAPER_26.values()) == 16


@pytest.mark.parametrize("column", PAPER_COLUMNS)
def test_the_papers_arithmetic(column):
    printed_mean, printed_above, right_mean, right_above, middle, trimmed, without = CHECKED[column]
    raw = {game: row.scores[column] for game, row in PAPER_26.items()}
    printed = [normalised(game, score, PRINTED) for game, score in raw.items()]
    right = {game: normalised(game, score) for game, score in raw.items()}
    assert compute_aggregates(printed)["mean"] == pytest.approx(printed_mean, abs=6e-4)
    assert (superhuman(raw, PRINTED), superhuman(raw)) == (printed_above, right_above)
    found = compute_aggregates(list(right.values()))
    assert [found[name] for name in ("mean", "median", "IQM")] == pytest.approx(
        [right_mean, middle, trimmed], abs=5.1e-4
    )
    for left_out, expected in zip(CARRIERS, without, strict=True):
        kept = [score for game, score in right.items() if game not in left_out]
        assert compute_aggregates(kept)["mean"] == pytest.approx(expected, abs=6e-4)


def test_human_normalised_by_hand():
    assert normalised("Breakout", 1.7) == 0 and normalised("Breakout", 30.5) == 1
    assert normalised("Pong", -20.7 + 35.3 / 4) == pytest.approx(0.25)
    assert not above_human("Breakout", 30.5) and above_human("Breakout", 30.6)
    # Printed with random above human, a score of 142 is 1.5 "times human" and still far below it.
    assert normalised("DemonAttack", 142.4, PRINTED) == pytest.approx(107662.6 / 71975.6)
    assert not above_human("DemonAttack", 142.4, PRINTED)
    with pytest.raises(ConfigError, match="Breakout"):
        normalised("Brekout", 1.0)


def test_aggregates_are_those_of_rliable():
    metrics = pytest.importorskip("rliable.metrics")  # a machine for GPU tests may lack it
    scores = np.random.default_rng(3).exponential(size=(5, 9))
    assert mean(scores) == metrics.aggregate_mean(scores)
    assert median(scores) == metrics.aggregate_median(scores) == np.median(scores.mean(axis=0))
    assert iqm(scores) == metrics.aggregate_iqm(scores)


def by_rliable(statistic, *parts, over_tasks=False):
    """The interval as rliable draws it from NumPy's global generator."""
    library = pytest.importorskip("rliable.library")
    before = np.random.get_state()
    np.random.seed(0)
    _, found = library.get_interval_estimates(
        {"": list(parts) if len(parts) > 1 else parts[0]}, lambda *drawn: np.array([statistic(*drawn)]),
        task_bootstrap=over_tasks, reps=stats.RESAMPLES,
    )  # fmt: skip
    np.random.set_state(before)
    return tuple(found[""][:, 0])


@pytest.mark.parametrize("statistic", [mean, median, iqm])
def test_intervals_are_those_of_rliable(statistic, monkeypatch):
    monkeypatch.setattr(stats, "RESAMPLES", 300)
    source = np.random.default_rng(5)
    ours, theirs = source.normal(size=(5, 7)), source.normal(size=(3, 7))
    assert bootstrap_interval(ours, statistic=statistic) == by_rliable(statistic, ours)
    assert bootstrap_interval(ours, statistic=statistic, over_tasks=True) == by_rliable(
        statistic, ours, over_tasks=True
    )
    found = difference_interval(ours, theirs, statistic=statistic, times=2)
    assert found == by_rliable(lambda left, right: statistic(left) - 2 * statistic(right), ours, theirs)

    def wins(mine, *others):
        return float((mine.mean(axis=0) > np.max([other.mean(axis=0) for other in others], axis=0)).sum())

    assert joint_interval([ours, theirs, ours], wins) == by_rliable(wins, ours, theirs, ours)


def test_intervals_repeat_and_agree_between_generators():
    scores = np.random.default_rng(4).normal(size=(6, 4))
    low, high = bootstrap_interval(scores)
    ours = bootstrap_interval(scores, np.random.default_rng(0))
    assert ours == pytest.approx((low, high), abs=0.06), "two draws of 2,000 resamples of the same thing"
    assert bootstrap_interval(scores) == (low, high)
    left = difference_interval(scores + 1, scores, times=1)
    assert left[0] < 1 < left[1] and left[1] - left[0] > high - low, "two sides redrawn, not one"
    assert difference_interval(scores + 1, scores, times=0) == pytest.approx((low + 1, high + 1), abs=0.06)


@pytest.mark.parametrize("rng", [None, np.random.default_rng(0)])
def test_intervals_are_over_what_they_say(rng):
    by_game = np.array([[0.0, 10.0], [0.0, 10.0], [0.0, 10.0]])
    assert bootstrap_interval(by_game, rng) == (5.0, 5.0), "seeds that agree leave no doubt about these games"
    assert bootstrap_interval(by_game, rng, over_tasks=True) == (0.0, 10.0), "another draw of games would"
    by_seed = by_game.T
    assert bootstrap_interval(by_seed, rng)[0] < 5 < bootstrap_interval(by_seed, rng)[1]
    assert bootstrap_interval(by_seed[:1], rng) is None
    assert bootstrap_interval(by_game[:, :1], rng, over_tasks=True) is None
    assert difference_interval(by_game, by_game[:1], rng) is None


def test_nobody_elses_random_numbers_move():
    np.random.seed(11)
    first = np.random.random(3)
    np.random.seed(11)
    bootstrap_interval(np.eye(3))
    assert (np.random.random(3) == first).all()


@pytest.mark.parametrize("scores", [np.zeros((1, 2, 3)), np.zeros((0, 3)), np.array([[1.0, np.nan]])])
def test_what_cannot_be_aggregated_is_refused(scores):
    with pytest.raises(ConfigError, match=r"\(seeds, tasks\)|finite"):
        mean(scores)
    with pytest.raises(ConfigError, match="same tasks"):
        difference_interval(np.ones((2, 3)), np.ones((2, 2)))
