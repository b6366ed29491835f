"""RE3 against cases worked by hand and a brute-force search in float64, one per variant."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from intrigue.rewards import REWARDS
from intrigue.rng import seeded_construction
from intrigue.spaces import ActionSpec, ObsSpec, Spaces
from intrigue.types import Transitions

SPACES = Spaces(ObsSpec("vector", (2,)), ActionSpec("discrete", sizes=(2,)))


def make(**options):
    entry = REWARDS.get("re3")
    with seeded_construction(0, "test"):
        return entry.cls(entry.config(**{"feature_dim": 4, "hidden": 5, **options}), SPACES).double()


def plane(**options):
    """A reward whose encoding is the state itself."""
    reward = make(variant="a2c", feature_dim=2, **options)
    reward.features.encoder = nn.Identity()
    return reward


def batch_of(obs):
    obs = torch.as_tensor(np.array(obs, dtype=np.float64))
    lead = obs.shape[:2]
    return Transitions(
        obs=obs,
        action=torch.zeros(*lead, 2),
        reward=torch.zeros(lead),
        terminated=torch.zeros(lead, dtype=torch.bool),
        truncated=torch.zeros(lead, dtype=torch.bool),
        next_obs=torch.full_like(obs, 77.0),
        valid=torch.ones(lead, dtype=torch.bool),
        skill=torch.zeros(*lead, 0),
    )


def line(*places):
    """States on a line, one environment."""
    return batch_of([[(place, 0.0)] for place in places])


def test_a2c_by_hand():
    # From 0: itself, 1, 3, 6 and 10 away: mean 4. Their deviation joins that of one tenth of a thousandth of a sample.
    reward, batch = plane(), line(0, 1, 3, 6, 10)
    places = np.array([0, 1, 3, 6, 10.0])
    means = np.abs(places[:, None] - places).mean(1)
    assert means[0] == 4
    var = (1e-4 + means.var(ddof=1) * 5 + means.mean() ** 2 * 1e-4 * 5 / (5 + 1e-4)) / (5 + 1e-4)
    with torch.no_grad():
        score, parts = reward.score_parts(batch)
    np.testing.assert_allclose(parts["distance"].squeeze(-1).numpy(), means)
    np.testing.assert_allclose(score.squeeze(-1).numpy(), np.log1p(means / math.sqrt(var)))


def test_a2c_takes_the_five_nearest_with_itself():
    reward, batch = plane(), line(0, 1, 2, 4, 8, 100)
    with torch.no_grad():
        distance = reward.score_parts(batch)[1]["distance"].squeeze(-1)
    assert float(distance[0]) == pytest.approx((0 + 1 + 2 + 4 + 8) / 5)
    assert float(distance[2]) == pytest.approx((0 + 1 + 2 + 2 + 6) / 5)
    with torch.no_grad():
        distance = plane(k=2).score_parts(batch)[1]["distance"].squeeze(-1)
    assert float(distance[5]) == pytest.approx(92 / 2)


def encoding(reward, states):
    """Tanh layers, then mean 0 and variance 1 over the features, then tanh."""
    rows = states
    for layer in reward.features.encoder.body:
        rows = rows @ layer.weight.numpy().T + layer.bias.numpy() if isinstance(layer, nn.Linear) else np.tanh(rows)
    centered = rows - rows.mean(-1, keepdims=True)
    return np.tanh(centered / np.sqrt(rows.var(-1, keepdims=True) + 1e-5))


def third_nearest(rows, candidates):
    """Distance to the third nearest other row, brute force; rows are the first of the candidates."""
    distance = np.linalg.norm(rows[:, None] - candidates, axis=-1)
    distance[np.arange(len(rows)), np.arange(len(rows))] = np.inf
    return np.sort(distance, axis=1)[:, 2]


@pytest.mark.parametrize("variant", ["paper", "official"])
def test_third_nearest_of_the_batch_and_of_what_came_before(variant):
    reward = make(variant=variant)
    rng = np.random.default_rng(0)
    remembered = np.zeros((0, 4))
    size, mean, var = 1e-4, 0.0, 1.0
    for _ in range(3):
        states = rng.normal(size=(6, 2, 2))
        rows = encoding(reward, states).reshape(12, 4)
        expected = third_nearest(rows, np.concatenate([rows, remembered]))
        with torch.no_grad():
            score, parts = reward.score_parts(batch_of(states))
        if variant == "paper":
            np.testing.assert_allclose(score.flatten().numpy(), np.log1p(expected), rtol=1e-9)
        else:
            shift, total = expected.mean() - mean, size + 12
            var = (var * size + expected.var(ddof=1) * 12 + shift**2 * size * 12 / total) / total
            mean, size = mean + shift * 12 / total, total
            np.testing.assert_allclose(score.flatten().numpy(), expected / math.sqrt(var), rtol=1e-9)
        reward.observe(batch_of(states), parts)
        remembered = np.concatenate([remembered, rows])
    np.testing.assert_allclose(np.sort(reward.memory.filled().numpy(), 0), np.sort(remembered, 0), rtol=1e-9)


def test_without_a_memory_only_the_batch_counts():
    reward, batch = make(memory=0), line(0, 1, 2, 3, 4)
    with torch.no_grad():
        before, parts = reward.score_parts(batch)
        reward.observe(batch, parts)
        assert torch.equal(reward.score(batch), before)


def test_known_states_stop_paying_and_new_ones_do_not():
    reward, known = make(), line(0, 0.1, 0.2, 0.3)
    with torch.no_grad():
        first = reward.score(known)
        for _ in range(4):
            reward.observe(known, reward.score_parts(known)[1])
        mixed = reward.score(line(0, 0.1, 0.2, 5.0))
    assert float(first.min()) > 0.01
    assert float(mixed[:3].max()) < 1e-6
    assert float(mixed[3]) > 0.1


def test_memory_forgets_the_oldest():
    reward = plane(memory=4)
    for start in (0, 10, 20):
        batch = line(start, start + 1)
        with torch.no_grad():
            reward.observe(batch, reward.score_parts(batch)[1])
    assert sorted(reward.memory.filled()[:, 0].tolist()) == [10, 11, 20, 21]


def test_rows_that_are_no_transitions_are_nobodys_neighbours():
    valid = torch.ones(5, 1, dtype=torch.bool)
    valid[1] = False
    reward, batch = plane(), line(0, 0.5, 1, 2, 4).replace(valid=valid)
    with torch.no_grad():
        parts = reward.score_parts(batch)[1]
        reward.observe(batch, parts)
    # Four valid rows: the five nearest are itself and three others.
    assert float(parts["distance"][0, 0]) == pytest.approx((0 + 1 + 2 + 4) / 4)
    assert sorted(reward.memory.filled()[:, 0].tolist()) == [0, 1, 2, 4]
    assert float(reward.moments.count) == pytest.approx(4 + 1e-4)


def test_which_state_is_looked_at():
    states, others = line(0, 1, 2, 3).obs, line(0, 5, 7, 20).obs
    left, reached = make(), make(neighbours_of="next_obs")
    batch, swapped = line(0, 1, 2, 3).replace(next_obs=others), line(0, 5, 7, 20).replace(next_obs=states)
    with torch.no_grad():
        assert torch.equal(left.score(batch), reached.score(swapped))
        assert not torch.equal(left.score(batch), left.score(swapped))
    assert (left.traits.inputs, reached.traits.inputs) == ({"obs"}, {"next_obs"})
