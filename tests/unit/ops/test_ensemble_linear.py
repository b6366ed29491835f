"""Linear layers of an ensemble: every way to compute them gives the same values and gradients."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intrigue.ops.matmul import TF32_ALIGNMENT, ensemble_linear, ensemble_linear_tf32x3, pad_inputs
from intrigue.ops.tf32x3 import is_worth_splitting

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
    torch.testing.assert_close(ensemble_linear(x, weight, bias), wanted)
    torch.testing.assert_close(ensemble_linear_tf32x3(x, weight, bias), wanted)
    padded_x, padded_weight = pad_inputs(x, weight)
    assert padded_x.shape[-1] == padded_weight.shape[-2] and padded_x.shape[-1] % TF32_ALIGNMENT == 0
    assert 0 <= padded_x.shape[-1] - inputs < TF32_ALIGNMENT
    torch.testing.assert_close(ensemble_linear(padded_x, padded_weight, bias), wanted)


@pytest.mark.parametrize("outputs", [1, 2, 3])
@pytest.mark.parametrize("shared", [False, True])
def test_compiled_it_is_the_plain_one_with_its_gradients(outputs, shared):
    found = []
    compiled = torch.compile(ensemble_linear, backend="aot_eager", fullgraph=True)
    for function in (ensemble_linear, compiled):
        given = [each.requires_grad_() for each in made(3, 4, 5, outputs, shared)]
        out = function(*given)
        (out * torch.arange(out.numel()).view_as(out)).sum().backward()
        found.append([out, *(each.grad for each in given)])
    for plain, other in zip(*found, strict=True):
        torch.testing.assert_close(other, plain)


def test_gradients_pass_through_padding():
    x, weight, bias = (each.requires_grad_() for each in made(2, 3, 6, 4, shared=True))
    ensemble_linear(*pad_inputs(x, weight), bias).square().sum().backward()
    again = [each.detach().clone().requires_grad_() for each in (x, weight, bias)]
    ensemble_linear(*again).square().sum().backward()
    for one, other in zip((x, weight, bias), again, strict=True):
        assert one.grad.shape == one.shape
        torch.testing.assert_close(one.grad, other.grad)


def test_tf32x3_refuses_inputs_that_require_grad():
    x, weight, bias = made(2, 3, 6, 4, shared=True)
    with pytest.raises(AssertionError):
        ensemble_linear_tf32x3(x, weight.requires_grad_(), bias)
    with torch.no_grad():
        ensemble_linear_tf32x3(x, weight, bias)


@pytest.mark.parametrize("shared", [False, True])
def test_tf32x3_of_several_seeds(shared):
    several = [torch.stack([each, 2 * each]) for each in made(3, 4, 5, 6, shared)]
    found = torch.func.vmap(ensemble_linear_tf32x3)(*several)
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
def test_which_sizes_are_split(rows, memory, dtype, pays):
    assert is_worth_splitting(*(torch.empty(shape, dtype=dtype, device="meta") for shape in (rows, memory))) is pays
