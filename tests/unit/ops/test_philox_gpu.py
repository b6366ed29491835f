"""On a CUDA device: the numbers of torch's generators, captured too, and generators that go on from there."""

from __future__ import annotations

import pytest
import torch

from intrigue.ops.execution import Captured
from intrigue.ops.philox import Dice
from intrigue.rng import normal, uniform

pytestmark = pytest.mark.gpu
KINDS = [("uniform", uniform, torch.float64), ("normal", normal, torch.float32)]
SHAPES = [(1,), (1, 6), (2, 1024), (2, 1024, 6), (2, 1024, 21)]


def generators(count):
    return [torch.Generator("cuda").manual_seed(2**62 + 7 * seed) for seed in range(count)]


def same(kind, found, wanted):
    if kind == "uniform":
        return torch.equal(found, wanted)
    return torch.allclose(found, wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(("kind", "draw", "dtype"), KINDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [1, 8])
def test_what_torch_draws(kind, draw, dtype, shape, count):
    rolled, own = generators(count), generators(count)
    for each in (*rolled, *own):  # not from the beginning
        uniform((3,), each)
    dice = Dice(rolled, shape, kind)
    dice.take_up()
    for _ in range(3):
        assert same(kind, dice.roll(), torch.stack([draw(shape, each, dtype) for each in own]))
    dice.put_down()
    for one, other in zip(rolled, own, strict=True):
        assert torch.equal(one.get_state(), other.get_state())
        assert torch.equal(uniform((5,), one), uniform((5,), other))


@pytest.mark.parametrize(("kind", "draw", "dtype"), KINDS)
def test_captured_it_goes_on(kind, draw, dtype):
    rolled, own = generators(2), generators(2)
    dice = Dice(rolled, (2, 100), kind)
    assert dice.registered == ()
    dice.take_up()
    captured = Captured(dice.roll, dice.registered, dice.changes)
    for _ in range(4):
        assert same(kind, captured(), torch.stack([draw((2, 100), each, dtype) for each in own]))
    dice.put_down()
    for each in (*rolled, *own):  # somebody else draws meanwhile
        normal((9,), each)
    dice.take_up()
    assert same(kind, captured(), torch.stack([draw((2, 100), each, dtype) for each in own]))
