"""Draws that hang on seed and counter alone, against the same hash in Python's whole numbers."""

from __future__ import annotations

import numpy as np
import torch

from intrigue.nn.counter_rng import CounterRng
from intrigue.rng import seeded_construction


def mixed(bits):
    bits = ((bits ^ (bits >> 16)) * 0x85EBCA6B) % 2**32
    bits = ((bits ^ (bits >> 13)) * 0xC2B2AE35) % 2**32
    return bits ^ (bits >> 16)


def test_numbers_are_those_of_the_hash():
    draws = CounterRng()
    draws.seed.fill_(4_000_000_123)
    for _ in range(7):
        draws.advance()
    wanted = [(mixed(i ^ mixed(7 ^ mixed(4_000_000_123))) + 0.5) / 2**32 for i in range(1000)]
    np.testing.assert_array_equal(draws.uniform(1000).numpy(), np.array(wanted))


def test_same_until_advanced_and_other_seeds_differ():
    with seeded_construction(0, "a"):
        first = CounterRng()
    with seeded_construction(1, "a"):
        second = CounterRng()
    before = first.uniform(50)
    assert torch.equal(first.uniform(50), before)
    assert torch.equal(first.uniform(20), before[:20])
    assert not torch.equal(second.uniform(50), before)
    first.advance()
    assert not torch.equal(first.uniform(50), before)
    second.load_state_dict(first.state_dict())
    assert torch.equal(second.uniform(50), first.uniform(50))


def test_numbers_look_random_along_both_axes():
    """Flat, uncorrelated with the neighbour and with the draw before: deviations of five standard errors at most."""
    draws = CounterRng()
    draws.seed.fill_(1)
    table = []
    for _ in range(100):
        table.append(draws.uniform(1000).numpy())
        draws.advance()
    table = np.stack(table)
    counts = np.histogram(table, bins=50, range=(0, 1))[0]
    assert np.square(counts - 2000).sum() / 2000 < 49 + 5 * np.sqrt(2 * 49)
    apart = (table - 0.5) * np.sqrt(12)
    assert abs((apart[:, 1:] * apart[:, :-1]).mean()) < 5 / np.sqrt(apart.size)
    assert abs((apart[1:] * apart[:-1]).mean()) < 5 / np.sqrt(apart.size)


def test_normal_draws_have_unit_moments():
    draws = CounterRng()
    draws.seed.fill_(2)
    values = draws.normal(100_000).numpy()
    assert np.isfinite(values).all()
    assert abs(values.mean()) < 5 / np.sqrt(values.size)
    assert abs(np.square(values).mean() - 1) < 5 * np.sqrt(2 / values.size)
    assert abs((np.abs(values) < 1).mean() - 0.6827) < 0.01
