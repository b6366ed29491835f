"""Layers of few outputs: the same numbers and gradients compiled as plain, alone and for several seeds at once."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from intrigue.cohort.stack import fuse_for_seeds, stack_modules
from intrigue.narrow import MOST, PRODUCT, narrow_linear


def gradients_of(function, layer, rows):
    """Of a loss that tells outputs apart."""
    out = function(layer, rows)
    loss = (out * torch.arange(1.0, out.numel() + 1).view(out.shape)).sum()
    return out, *torch.autograd.grad(loss, [rows, layer.weight, layer.bias])


@pytest.mark.parametrize("outputs", [1, 6, MOST, MOST + 1])
def test_compiled_it_is_the_layer(outputs):
    torch.manual_seed(0)
    layer, rows = nn.Linear(40, outputs), torch.randn(12, 40, requires_grad=True)
    compiled = torch.compile(narrow_linear, dynamic=False)
    found, wanted = (gradients_of(each, layer, rows) for each in (compiled, lambda one, x: one(x)))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)


def test_only_layers_of_few_outputs_are_the_operators():
    """By the graphs that a compiler sees."""
    seen = []

    def look(graph, inputs):
        del inputs
        seen.append("narrow_product" in graph.print_readable(print_output=False))
        return graph

    for outputs in (MOST, MOST + 1):
        torch.compile(narrow_linear, backend=look, dynamic=False)(nn.Linear(4, outputs), torch.randn(3, 4))
    assert seen == [True, False]


def test_plain_it_is_the_layer_to_the_bit():
    layer, rows = nn.Linear(40, 6), torch.randn(12, 40)
    assert torch.equal(narrow_linear(layer, rows), layer(rows))
    assert torch.equal(narrow_linear(layer, rows[0]), layer(rows[0]))


def test_seeds_together_are_each_alone():
    torch.manual_seed(1)
    layers, rows = [nn.Linear(20, 6) for _ in range(3)], torch.randn(3, 5, 20, requires_grad=True)
    alone = torch.stack([layer(x) for layer, x in zip(layers, rows, strict=True)])
    (wanted,) = torch.autograd.grad(alone.square().sum(), [rows])
    stacked = stack_modules(layers)
    together = fuse_for_seeds(lambda x: stacked.call(narrow_linear, x))(rows)
    torch.testing.assert_close(together, alone)
    found, weights, _ = torch.autograd.grad(together.square().sum(), [rows, *stacked.leaves.values()])
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert weights.is_contiguous()


def test_gradients_of_the_product_alone():
    x = torch.randn(2, 4, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 3, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(PRODUCT, (x, weight))
