"""Draws of several seeds at once: each seed's numbers are its own generator's."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from intrigue.cohort.lanes import Lanes
from intrigue.cohort.stack import stack_modules
from intrigue.rng import Rng, normal, uniform
from no_sync import NoSync


class Drawing(nn.Module):
    """Draws twice of each kind, and scales by a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def draw(self, shape: tuple[int, ...], rng: Rng) -> tuple[Tensor, ...]:
        wide = torch.float64
        return (
            uniform(shape, rng),
            self.weight * normal(shape, rng),
            normal(shape, rng, wide),
            uniform(shape, rng, wide),
        )


def generators(count: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(7 + seed) for seed in range(count)]


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.lists(st.integers(0, 9), max_size=3).map(tuple))
def test_each_seed_draws_what_its_generator_gives(count, shape):
    stacked = stack_modules([Drawing() for _ in range(count)])
    lanes, own = Lanes(generators(count)), generators(count)
    found = stacked.call("draw", shape, lanes)
    for seed, rng in enumerate(own):
        wanted = (
            torch.rand(shape, generator=rng),
            torch.randn(shape, generator=rng),
            torch.randn(shape, generator=rng, dtype=torch.float64),
            torch.rand(shape, generator=rng, dtype=torch.float64),
        )
        for each, numbers in zip(found, wanted, strict=True):
            assert each[seed].dtype == numbers.dtype and torch.equal(each[seed], numbers)
        assert torch.equal(lanes.generators[seed].get_state(), rng.get_state())


def test_gradients_pass_by_what_was_drawn():
    stacked = stack_modules([Drawing() for _ in range(3)])
    numbers = torch.stack([torch.randn(5, generator=rng) for rng in _after_uniform(generators(3))])
    stacked.call("draw", (5,), Lanes(generators(3)))[1].sum().backward()
    torch.testing.assert_close(stacked.leaves["weight"].grad, numbers.sum(-1))


def _after_uniform(rngs: list[torch.Generator]) -> list[torch.Generator]:
    for rng in rngs:
        torch.rand(5, generator=rng)
    return rngs


@pytest.mark.parametrize("count", [1, 3])
def test_drawing_never_waits(count):
    stacked, lanes = stack_modules([Drawing() for _ in range(count)]), Lanes(generators(count))
    with NoSync():
        stacked.call("draw", (4,), lanes)


def test_a_draw_for_several_seeds_needs_them():
    with pytest.raises(RuntimeError, match=r"only within Stacked\.call"):
        uniform((2,), Lanes(generators(2)))
    stacked = stack_modules([Drawing() for _ in range(3)])
    with pytest.raises(ValueError, match="size"):
        stacked.call("draw", (4,), Lanes(generators(2)))
    with pytest.raises(ValueError, match="one for each"):
        Lanes([])
    with pytest.raises(RuntimeError, match="random"):  # torch's own draws would be the same for nobody
        stacked.call(lambda module: module.weight + torch.rand(2))


def test_a_generator_alone_is_drawn_from_as_ever():
    rng, again = (torch.Generator().manual_seed(3) for _ in range(2))
    assert torch.equal(uniform((2, 3), rng), torch.rand(2, 3, generator=again))
    assert torch.equal(normal((2, 3), rng, torch.float64), torch.randn(2, 3, generator=again, dtype=torch.float64))
