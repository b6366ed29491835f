"""The random bonus, against the same hash in Python's whole numbers: per transition, per batch, per seed."""

from __future__ import annotations

import numpy as np
import torch

from conftest import make_batch, make_spaces
from intrigue.config.curiosity import CuriosityConfig
from intrigue.curiosity.curiosity import Curiosity


def mixed(bits):
    bits = ((bits ^ (bits >> 16)) * 0x85EBCA6B) % 2**32
    bits = ((bits ^ (bits >> 13)) * 0xC2B2AE35) % 2**32
    return bits ^ (bits >> 16)


def make(seed=0):
    return Curiosity.from_config("random", {}, CuriosityConfig(scale="none"), make_spaces(), device="cpu", seed=seed)


def test_draws_go_by_place_and_batch_and_are_handed_on_unscaled():
    curiosity = make()
    curiosity.reward.draws.seed.fill_(12_345)
    for batch_number in range(3):
        batch = make_batch(make_spaces(), time=6, envs=4, seed=batch_number)
        step = curiosity.step_batch(batch)
        place = np.arange(24).reshape(6, 4)  # time first
        hashed = [(mixed(int(i) ^ mixed(batch_number ^ mixed(12_345))) + 0.5) / 2**32 for i in place.flatten()]
        wanted = np.array(hashed, np.float32).reshape(6, 4)
        np.testing.assert_array_equal(step.intrinsic.numpy(), wanted)
        np.testing.assert_array_equal(step.reward.numpy(), wanted)


def test_the_bonus_does_not_look_at_the_transition():
    one, two = (make().step_batch(make_batch(make_spaces(), seed=seed)).intrinsic for seed in (1, 2))
    assert torch.equal(one, two)
    other = make(seed=1).step_batch(make_batch(make_spaces(), seed=1)).intrinsic
    assert not torch.equal(one, other)


def test_rows_that_are_no_transitions_get_nothing():
    batch = make_batch(make_spaces())
    valid = batch.valid.clone()
    valid[2, 1] = False
    bonus = make().step_batch(batch.replace(valid=valid)).intrinsic
    assert bonus[2, 1] == 0
    assert (bonus[valid] > 0).all()
