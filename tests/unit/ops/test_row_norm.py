"""Norms of rows and their gradients, eager and compiled, of any width; and a loss built on them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import intrigue
from intrigue.nn.icm_dynamics import IcmDynamics
from intrigue.ops.row_norm import row_norm
from intrigue.spaces import ActionSpec

NORMS = re.compile(r"(vector_norm|linalg\.norm|\.norm)\(")


def in_both_ways(function):
    return function, torch.compile(function, backend="aot_eager", dynamic=False)


@pytest.mark.parametrize("lead", [(5,), (1, 5), (2, 3)])
@pytest.mark.parametrize("width", [1, 2, 7])
def test_norms_and_their_gradient(lead, width):
    x = torch.randn(*lead, width, generator=torch.Generator().manual_seed(width), requires_grad=True)
    wanted = x.detach().square().sum(-1).sqrt()
    for function in in_both_ways(lambda x: row_norm(x).mean()):
        (gradient,) = torch.autograd.grad(function(x), x)
        torch.testing.assert_close(gradient, x.detach() / wanted.unsqueeze(-1) / wanted.numel())
    torch.testing.assert_close(row_norm(x.detach()), wanted)


def test_gradient_at_zero_is_zero():
    x = torch.zeros(3, 1, requires_grad=True)
    for function in in_both_ways(lambda x: row_norm(x).sum()):
        assert torch.autograd.grad(function(x), x)[0].eq(0).all()


def test_norms_are_compiled_with_their_axis():
    """Whatever version compiles here: without it torch 2.11 has the wrong gradient, of one number alone."""
    asked = []

    def inspect(graph, inputs):
        asked.extend(node.kwargs for node in graph.graph.nodes if node.target is torch.linalg.vector_norm)
        return graph.forward

    model = IcmDynamics(8, ActionSpec("continuous", low=(-1.0,), high=(1.0,)), 6)
    torch.compile(lambda *given: model(*given), backend=inspect)(*torch.randn(2, 1, 16, 8), torch.rand(1, 16, 1))
    assert [each["keepdim"] for each in asked] == [True, True]


def test_nothing_that_learns_computes_norms_otherwise():
    """The files listed have norms without gradients: distances, denominators of singular values, initial weights."""
    source = Path(intrigue.__file__).parent
    found = {str(file.relative_to(source)) for file in source.rglob("*.py") if NORMS.search(file.read_text())}
    assert found == {"ops/row_norm.py", "nn/knn.py", "nuclear/reference.py", "bench/score.py", "nn/networks.py"}


@pytest.mark.parametrize("actions", [1, 2])
def test_the_inverse_error_of_one_number_and_of_more(actions):
    """torch 2.11 compiled this, of one number, into a gradient sixteen times too large."""
    torch.manual_seed(0)
    model = IcmDynamics(8, ActionSpec("continuous", low=(-1.0,) * actions, high=(1.0,) * actions), 6)
    here, there = torch.randn(2, 1, 16, 8)
    action = 2 * torch.rand(1, 16, actions) - 1
    plain, compiled = (
        torch.autograd.grad(function(here, there, action), list(model.parameters()))
        for function in in_both_ways(lambda *given: model(*given))
    )
    for one, other in zip(plain, compiled, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-6)
