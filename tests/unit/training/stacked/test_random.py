"""Draws of several seeds at once: each seed's numbers are its own generator's."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from intrigue.rng import Rng, normal, uniform
from intrigue.training.stacked.modules import Stacked, stack_modules
from intrigue.training.stacked.random import DrawRecorder, PreDrawn, draw
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


def asked(stacked: Stacked, shape: tuple[int, ...]) -> DrawRecorder:
    told = DrawRecorder(torch.device("cpu"))
    stacked.call("draw", shape, told)
    return told


def generators(count: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(7 + seed) for seed in range(count)]


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.lists(st.integers(0, 9), max_size=3).map(tuple))
def test_each_seed_draws_what_its_generator_gives(count, shape):
    stacked = stack_modules([Drawing() for _ in range(count)])
    each, own = generators(count), generators(count)
    found = stacked.call("draw", shape, draw(asked(stacked, shape).draws, each))
    for seed, rng in enumerate(own):
        wanted = (
            torch.rand(shape, generator=rng),
            torch.randn(shape, generator=rng),
            torch.randn(shape, generator=rng, dtype=torch.float64),
            torch.rand(shape, generator=rng, dtype=torch.float64),
        )
        for rows, numbers in zip(found, wanted, strict=True):
            assert rows[seed].dtype == numbers.dtype and torch.equal(rows[seed], numbers)
        assert torch.equal(each[seed].get_state(), rng.get_state())


def test_gradients_pass_by_what_was_drawn():
    stacked = stack_modules([Drawing() for _ in range(3)])
    numbers = torch.stack([torch.randn(5, generator=rng) for rng in _after_uniform(generators(3))])
    stacked.call("draw", (5,), draw(asked(stacked, (5,)).draws, generators(3)))[1].sum().backward()
    torch.testing.assert_close(stacked.leaves["weight"].grad, numbers.sum(-1))


def _after_uniform(rngs: list[torch.Generator]) -> list[torch.Generator]:
    for rng in rngs:
        torch.rand(5, generator=rng)
    return rngs


@pytest.mark.parametrize("count", [1, 3])
def test_drawing_never_waits(count):
    stacked = stack_modules([Drawing() for _ in range(count)])
    told, each = asked(stacked, (4,)).draws, generators(count)
    with NoSync():
        stacked.call("draw", (4,), draw(told, each))


@pytest.mark.parametrize("count", [1, 3])
def test_what_is_drawn_before_can_be_compiled(count):
    stacked = stack_modules([Drawing() for _ in range(count)])
    told = asked(stacked, (4,)).draws
    compiled = torch.compile(lambda drawn: stacked.call("draw", (4,), drawn), backend="aot_eager", fullgraph=True)
    each, own = generators(count), generators(count)
    for _ in range(2):
        found, wanted = compiled(draw(told, each)), stacked.call("draw", (4,), draw(told, own))
        assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


def test_what_is_asked_for_is_noted_in_its_order():
    assert asked(stack_modules([Drawing() for _ in range(3)]), (5,)).draws == [
        ("uniform", (5,), torch.float32),
        ("normal", (5,), torch.float32),
        ("normal", (5,), torch.float64),
        ("uniform", (5,), torch.float64),
    ]


def test_other_draws_than_were_told_are_refused():
    stacked = stack_modules([Drawing() for _ in range(3)])
    told = asked(stacked, (4,)).draws
    with pytest.raises(RuntimeError, match=r"only within Stacked\.call"):
        uniform((4,), draw(told, generators(3)))
    with pytest.raises(RuntimeError, match=r"draw 0 is .* was asked for before"):
        stacked.call("draw", (5,), draw(told, generators(3)))
    with pytest.raises(RuntimeError, match=r"draw 3 is .* only 3 were asked for before"):
        stacked.call("draw", (4,), draw(told[:3], generators(3)))
    with pytest.raises(ValueError, match="one for each seed"):
        draw(told, [])
    with pytest.raises(ValueError, match="size"):
        stacked.call("draw", (4,), draw(told, generators(2)))
    with pytest.raises(RuntimeError, match="random"):  # torch's own draws would be the same for nobody
        stacked.call(lambda module: module.weight + torch.rand(2))


def test_numbers_are_handed_out_once_and_all_of_them():
    (told, *_), rows = asked(stack_modules([Drawing()]), (2,)).draws, torch.rand(2)
    drawn = PreDrawn([told], [rows])
    with pytest.raises(RuntimeError, match="0 of 1 draws"):
        drawn.finish()
    assert uniform((2,), drawn) is rows
    drawn.finish()
    with pytest.raises(RuntimeError, match="draw 1 is"):
        uniform((2,), drawn)


def test_a_generator_alone_is_drawn_from_as_ever():
    rng, again = (torch.Generator().manual_seed(3) for _ in range(2))
    assert torch.equal(uniform((2, 3), rng), torch.rand(2, 3, generator=again))
    assert torch.equal(normal((2, 3), rng, torch.float64), torch.randn(2, 3, generator=again, dtype=torch.float64))
