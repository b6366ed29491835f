"""The particle estimator against brute force in float64 NumPy, its normalisers, and its purity."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import same_state
from intrigue.nn import knn
from intrigue.nn.particle_entropy import ParticleEntropy


def brute_distances(query, candidates, k, *, skip):
    """Ascending distances to the k nearest of each query, fewer where there are fewer."""
    table = []
    for row, state in enumerate(query):
        distances = [
            math.sqrt(sum((float(a) - float(b)) ** 2 for a, b in zip(state, other, strict=True)))
            for column, other in enumerate(candidates)
            if not (skip and row == column)
        ]
        table.append(sorted(distances)[:k])
    return table


def brute_score(table, *, average, clip, log, unit):
    scores = []
    for distances in table:
        entering = distances if average else distances[-1:]
        above = [max(each / unit - clip, 0.0) for each in entering]
        mean = sum(above) / len(above) if above else 0.0
        scores.append(math.log(1 + mean) if log else mean)
    return np.array(scores)


def running(tables, normalizer, average):
    """Mean, deviation or variance of everything that entered, after openai/baselines' 1e-4 samples of N(0, 1)."""
    values = np.array([each for table in tables for row in table for each in (row if average else row[-1:])])
    count = len(values) + 1e-4
    mean = values.sum() / count
    var = (np.square(values - mean).sum() + 1e-4 * (1 + mean**2)) / count
    return {"none": 1.0, "mean": mean, "std": math.sqrt(var), "variance": var}[normalizer]


@settings(max_examples=60, deadline=None)
@given(
    time=st.integers(1, 4),
    envs=st.integers(1, 4),
    k=st.integers(1, 7),
    count_self=st.booleans(),
    average=st.booleans(),
    normalizer=st.sampled_from(["none", "mean", "std", "variance"]),
    clip=st.sampled_from([0.0, 0.3]),
    log=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_same_as_brute_force(time, envs, k, count_self, average, normalizer, clip, log, seed):
    entropy = ParticleEntropy(
        k, count_self=count_self, average=average, normalizer=normalizer, clip=clip, log=log
    ).double()
    rng = np.random.default_rng(seed)
    valid = torch.ones(time, envs, dtype=torch.bool)
    tables = []
    for _ in range(2):
        states = rng.normal(size=(time, envs, 3))
        tables.append(brute_distances(states.reshape(-1, 3), states.reshape(-1, 3), k, skip=not count_self))
        score, parts = entropy.score(torch.from_numpy(states), valid)
        entropy.observe(parts, valid)
        unit = max(running(tables, normalizer, average), 1e-8) if any(map(len, tables[0])) else 1.0
        wanted = brute_score(tables[-1], average=average, clip=clip, log=log, unit=unit)
        np.testing.assert_allclose(score.numpy().reshape(-1), wanted, rtol=1e-6, atol=1e-9)


def test_by_hand():
    states = torch.tensor([[[0.0, 0.0]], [[3.0, 4.0]], [[0.0, 1.0]], [[30.0, 40.0]]])
    valid = torch.ones(4, 1, dtype=torch.bool)
    # From the origin: itself 0, (0,1) at 1, (3,4) at 5.
    mean, parts = ParticleEntropy(3).score(states, valid)
    assert math.isclose(float(mean[0, 0]), math.log(1 + 2), rel_tol=1e-6)
    assert math.isclose(float(parts["distance"][0, 0]), 2, rel_tol=1e-6)
    kth, _ = ParticleEntropy(2, count_self=False, average=False, log=False, clip=0.5).score(states, valid)
    assert math.isclose(float(kth[0, 0]), 4.5, rel_tol=1e-6)


def test_a_row_that_is_no_transition_is_nobodys_neighbour():
    states = torch.tensor([[[0.0]], [[0.1]], [[2.0]], [[5.0]]])
    valid = torch.tensor([[True], [False], [True], [True]])
    entropy = ParticleEntropy(1, count_self=False, normalizer="mean", log=False)
    score, parts = entropy.score(states, valid)
    entropy.observe(parts, valid)
    # Without 0.1: nearest distances 2, 2, 3; their mean is the unit.
    np.testing.assert_allclose(score[valid].numpy(), np.array([2, 2, 3]) / (7 / 3), rtol=1e-4)
    assert math.isclose(float(entropy.moments.count), 3 + 1e-4)


def test_given_candidates_and_the_batch_in_front_of_them():
    batch = torch.tensor([[[0.0]], [[10.0]]])
    valid = torch.ones(2, 1, dtype=torch.bool)
    memory = torch.tensor([[1.0], [11.0], [12.0]])
    entropy = ParticleEntropy(2, count_self=False, log=False)
    apart, _ = entropy.score(batch, valid, memory)
    np.testing.assert_allclose(apart.squeeze(-1).numpy(), [(1 + 11) / 2, (1 + 2) / 2], rtol=1e-6)
    some, _ = entropy.score(batch, valid, memory, allowed=torch.tensor([True, False, True]))
    np.testing.assert_allclose(some.squeeze(-1).numpy(), [(1 + 12) / 2, (9 + 2) / 2], rtol=1e-6)
    together, _ = entropy.score(batch, valid, torch.cat([batch.flatten(0, 1), memory]), aligned=True)
    np.testing.assert_allclose(together.squeeze(-1).numpy(), [(1 + 10) / 2, (1 + 2) / 2], rtol=1e-6)


@pytest.mark.parametrize("normalizer", ["mean", "std", "variance"])
def test_scoring_is_pure_and_observing_commits_what_was_scored(normalizer):
    entropy = ParticleEntropy(3, normalizer=normalizer, log=False)
    valid = torch.ones(5, 2, dtype=torch.bool)
    states = torch.randn(5, 2, 4, generator=torch.Generator().manual_seed(0))
    before = {name: value.clone() for name, value in entropy.state_dict().items()}
    first, parts = entropy.score(states, valid)
    assert torch.equal(entropy.score(states, valid)[0], first)
    assert same_state(before, dict(entropy.state_dict()))
    entropy.observe(parts, valid)
    # A batch of one state, which has no neighbour but itself, is divided by what was committed (and its own zero).
    unit = {"mean": entropy.moments.mean, "std": entropy.moments.var.sqrt(), "variance": entropy.moments.var}
    plain, _ = ParticleEntropy(3, log=False).score(states, valid)
    torch.testing.assert_close(first, (plain / unit[normalizer]).float())


def test_states_all_alike_are_worth_nothing_and_broken_ones_stay_visible():
    valid = torch.ones(4, 2, dtype=torch.bool)
    for normalizer in ("none", "mean", "std", "variance"):
        score, parts = ParticleEntropy(3, normalizer=normalizer, clip=1e-4).score(torch.ones(4, 2, 5), valid)
        assert torch.equal(score, torch.zeros(4, 2)), normalizer
        assert not any(part.isnan().any() for part in parts.values())
    broken = torch.ones(4, 2, 5)
    broken[1, 1, 2] = torch.nan
    assert ParticleEntropy(3).score(broken, valid)[0][1, 1].isnan()


def test_chunks_change_nothing(monkeypatch):
    states = torch.randn(20, 2, 4, generator=torch.Generator().manual_seed(0))
    valid = torch.ones(20, 2, dtype=torch.bool)
    whole, _ = ParticleEntropy(5, count_self=False).score(states, valid)
    monkeypatch.setattr(knn, "CHUNK_ELEMENTS", 70)
    torch.testing.assert_close(ParticleEntropy(5, count_self=False).score(states, valid)[0], whole)
