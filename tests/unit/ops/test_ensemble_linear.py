"""Layers of several members: every way to compute them gives the same, and gradients are those of the plain one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intrigue.ops.matmul import FOUR, by_parts, filled_up, member_products
from intrigue.ops.tf32x3 import worth_splitting

SIZES = st.integers(1, 9)


def made(members, rows, inputs, outputs, shared, dtype=torch.float64):
    rng = torch.Generator().manual_seed(members + 10 * rows + 100 * inputs + 1000 * outputs)
    shapes = ((rows, inputs) if shared else (members, rows, inputs), (members, inputs, outputs), (members, 1, outputs))
    return [torch.randn(shape, generator=rng, dtype=dtype) for shape in shapes]


def by_hand(x, weight, bias):
    """Each member by itself, each number a sum."""
    return torch.stack(
        [
            torch.stack([(row.unsqueeze(-1) * weight[k]).sum(0) + bias[k, 0] for row in (x if x.dim() == 2 else x[k])])
            for k in range(len(weight))
        ]
    )


@settings(max_examples=25, deadline=None)
@given(SIZES, SIZES, SIZES, SIZES, st.booleans())
def test_every_way_is_the_same_product(members, rows, inputs, outputs, shared):
    x, weight, bias = made(members, rows, inputs, outputs, shared)
    wanted = by_hand(x, weight, bias)
    torch.testing.assert_close(member_products(x, weight, bias), wanted)
    torch.testing.assert_close(by_parts(x, weight, bias), wanted)
    wide_x, wide_weight = filled_up(x, weight)
    assert wide_x.shape[-1] == wide_weight.shape[-2] and wide_x.shape[-1] % FOUR == 0
    assert 0 <= wide_x.shape[-1] - inputs < FOUR
    torch.testing.assert_close(member_products(wide_x, wide_weight, bias), wanted)


@pytest.mark.parametrize("outputs", [1, 2, 3])
@pytest.mark.parametrize("shared", [False, True])
def test_compiled_it_is_the_plain_one_with_its_gradients(outputs, shared):
    found = []
    compiled = torch.compile(member_products, backend="aot_eager", fullgraph=True)
    for function in (member_products, compiled):
        given = [each.requires_grad_() for each in made(3, 4, 5, outputs, shared)]
        out = function(*given)
        (out * torch.arange(out.numel()).view_as(out)).sum().backward()
        found.append([out, *(each.grad for each in given)])
    for plain, other in zip(*found, strict=True):
        torch.testing.assert_close(other, plain)


def test_gradients_pass_through_what_was_filled_up():
    x, weight, bias = (each.requires_grad_() for each in made(2, 3, 6, 4, shared=True))
    member_products(*filled_up(x, weight), bias).square().sum().backward()
    again = [each.detach().clone().requires_grad_() for each in (x, weight, bias)]
    member_products(*again).square().sum().backward()
    for one, other in zip((x, weight, bias), again, strict=True):
        assert one.grad.shape == one.shape
        torch.testing.assert_close(one.grad, other.grad)


def test_parts_refuse_what_they_would_cut_off():
    x, weight, bias = made(2, 3, 6, 4, shared=True)
    with pytest.raises(AssertionError):
        by_parts(x, weight.requires_grad_(), bias)
    with torch.no_grad():
        by_parts(x, weight, bias)


@pytest.mark.parametrize("shared", [False, True])
def test_parts_of_several_seeds(shared):
    several = [torch.stack([each, 2 * each]) for each in made(3, 4, 5, 6, shared)]
    found = torch.func.vmap(by_parts)(*several)
    for seed in range(2):
        torch.testing.assert_close(found[seed], by_hand(*(each[seed] for each in several)))


@pytest.mark.parametrize(
    ("rows", "memory", "dtype", "pays"),
    [
        ((1024, 518), (5 * 1024, 518), torch.float32, True),
        ((1024, 518), (11 * 1024, 518), torch.float32, False),  # eleven members that share their rows
        ((5, 1024, 1030), (5, 512, 1030), torch.float32, True),
        ((1024, 518), (5 * 1024, 518), torch.float64, False),
        ((255, 518), (5, 1024, 518), torch.float32, False),
        ((1024, 518), (5, 6, 518), torch.float32, False),
        ((1024, 24), (5, 1024, 24), torch.float32, False),
        ((1024, 4097), (1024, 4097), torch.float32, False),
        ((16384, 518), (5, 512, 518), torch.float32, False),  # as many rows as a rollout of Atari's
    ],
)
def test_only_factors_of_some_size_are_split(rows, memory, dtype, pays):
    assert worth_splitting(*(torch.empty(shape, dtype=dtype, device="meta") for shape in (rows, memory))) is pays
