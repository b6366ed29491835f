"""Named streams: each depends on the seed and on its name, and on nothing else."""

from __future__ import annotations

import pytest
import torch

from conftest import same_state
from intrigue.rng import STREAM_NAMES, Streams, seeded_construction
from intrigue.seeding import SEED_LIMIT, derive_seed


def draws(streams, name, count=5):
    return torch.rand(count, generator=streams[name])


@pytest.mark.parametrize("name", STREAM_NAMES)
def test_a_stream_follows_its_seed(name):
    assert torch.equal(draws(Streams(1), name), draws(Streams(1), name))
    assert not torch.equal(draws(Streams(1), name), draws(Streams(2), name))


def test_streams_differ_from_each_other():
    streams = Streams(1)
    rows = torch.stack([draws(streams, name) for name in STREAM_NAMES])
    assert len(torch.unique(rows[:, 0])) == len(STREAM_NAMES)


def test_using_one_stream_moves_no_other():
    used, fresh = Streams(1), Streams(1)
    draws(used, "act", 1000)
    assert torch.equal(draws(used, "update"), draws(fresh, "update"))


def test_state_round_trip():
    first, second = Streams(1), Streams(2)
    draws(first, "act", 7)
    second.load_state_dict(first.state_dict())
    assert same_state(first.state_dict(), second.state_dict())
    assert torch.equal(draws(first, "act"), draws(second, "act"))


def test_construction_is_seeded_and_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    weights = []
    for seed in (1, 1, 2):
        with seeded_construction(seed, "init"):
            weights.append(torch.nn.Linear(3, 3).weight.detach().clone())
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert torch.equal(torch.get_rng_state(), before)


def test_seeds_are_in_range_and_depend_on_every_name():
    seeds = {derive_seed(seed, name, index) for seed in range(5) for name in ("env", "act") for index in range(50)}
    assert len(seeds) == 500
    assert all(0 <= seed < SEED_LIMIT for seed in seeds)
    assert derive_seed(1, "a", "b") != derive_seed(1, "ab")
