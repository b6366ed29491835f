"""Hidden layers: bfloat16 factors, float32 sums, any width, alone and for several seeds at once."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from intrigue.ops.matmul import (
    HIDDEN_MATMUL,
    EnsembleLinear,
    ensemble_hidden_linear,
    ensemble_hidden_matmul,
    hidden_linear,
    hidden_matmul,
)
from intrigue.ops.precision import exact_float32, fast_float32
from intrigue.training.stacked.modules import stack_modules


def rounded(tensor):
    return tensor.detach().bfloat16().double()


def layer_and_rows(width, *lead):
    torch.manual_seed(3)
    return nn.Linear(width, 5), torch.randn(*lead, width, requires_grad=True)


@pytest.mark.parametrize("width", [8, 13, 1])
@pytest.mark.parametrize("lead", [(6,), (1, 6), (2, 3)])
def test_the_layer_and_its_gradients(bfloat16, width, lead):
    layer, rows = layer_and_rows(width, *lead)
    up = torch.randn(*lead, 5)
    with fast_float32():
        out = hidden_linear(layer, rows)
        out.backward(up)
    x, w, g = rounded(rows), rounded(layer.weight), rounded(up)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.detach().double(), x @ w.T + layer.bias.detach().double(), rtol=1e-2, atol=1e-2)
    assert rows.grad is not None and layer.weight.grad is not None and layer.bias.grad is not None
    torch.testing.assert_close(rows.grad.double(), g @ w, rtol=1e-2, atol=1e-2)
    flat = g.flatten(0, -2).T @ x.flatten(0, -2)
    torch.testing.assert_close(layer.weight.grad.double(), flat, rtol=1e-2, atol=1e-2)
    # The bias is not part of the product: its gradient is not rounded.
    torch.testing.assert_close(layer.bias.grad, up.flatten(0, -2).sum(0))


def test_gradients_are_of_rounded_factors(bfloat16):
    """257 has eight bits of mantissa, one more than bfloat16 has, and becomes 256."""
    layer, rows = nn.Linear(2, 1), torch.tensor([[257.0, 3.0]], requires_grad=True)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[257.0, 5.0]]))
    with fast_float32():
        hidden_linear(layer, rows).backward(torch.tensor([[257.0]]))
    assert rows.grad is not None and layer.weight.grad is not None and layer.bias.grad is not None
    assert rows.grad.tolist() == [[256.0 * 256.0, 256.0 * 5.0]]
    assert layer.weight.grad.tolist() == [[256.0 * 256.0, 256.0 * 3.0]]
    assert layer.bias.grad.tolist() == [257.0]


def test_a_single_row_is_the_layers_own(bfloat16):
    layer, rows = layer_and_rows(8)
    with fast_float32():
        assert torch.equal(hidden_linear(layer, rows), layer(rows))


def test_factors_are_rounded_and_the_bias_is_not(bfloat16):
    layer = nn.Linear(2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 0.0]]))
        layer.bias.fill_(1 + 2**-20)
    rows = torch.tensor([[257.0, 3.0]])  # eight bits of mantissa, one more than bfloat16 has
    with fast_float32():
        assert hidden_linear(layer, rows).item() == torch.tensor(256 + 1 + 2**-20).item()
        with exact_float32():
            assert hidden_linear(layer, rows).item() == layer(rows).item()
    assert hidden_linear(layer, rows).item() == layer(rows).item()


@pytest.mark.parametrize("width", [8, 13])
def test_stacked_seeds_equal_each_alone_and_gradients_have_the_weights_layout(bfloat16, width):
    layers = [layer_and_rows(width)[0] for _ in range(3)]
    rows = torch.randn(3, 6, width)
    with fast_float32():
        alone = torch.stack([hidden_linear(layer, x) for layer, x in zip(layers, rows, strict=True)])
        stacked = stack_modules(layers)
        together = stacked.call(hidden_linear, rows)
        torch.testing.assert_close(together, alone)
        gradient, _ = torch.autograd.grad(together.square().sum(), [*stacked.leaves.values()])
    assert gradient.is_contiguous()


def test_gradients_of_the_product_alone():
    x = torch.randn(2, 4, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 3, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(HIDDEN_MATMUL, (x, weight))


def test_rows_may_be_rounded_already(bfloat16):
    layer, rows = layer_and_rows(8, 6)
    with fast_float32():
        found, wanted = hidden_linear(layer, rows.bfloat16()), hidden_linear(layer, rows)
    assert found.dtype == torch.float32
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("learning", [False, True])
def test_rounded_rows_are_accepted_where_layers_compute_in_float32(bfloat16, learning):
    layer, rows = layer_and_rows(8, 6)
    members, shared = members_and_rows()
    low = rows.detach().bfloat16()
    with fast_float32() if learning else exact_float32():
        assert torch.equal(hidden_linear(layer, low[0]), layer(low[0].float()))
    with exact_float32():
        assert torch.equal(hidden_linear(layer, low), layer(low.float()))
        torch.testing.assert_close(hidden_matmul(layer, low) + layer.bias, layer(low.float()))
        low = shared.detach().bfloat16()
        assert torch.equal(ensemble_hidden_linear(members, low), members(low.float()))
        assert ensemble_hidden_matmul(members, low).dtype == torch.float32


def members_and_rows():
    torch.manual_seed(4)
    layer = EnsembleLinear(2, 6, 5)
    nn.init.normal_(layer.bias)
    return layer, torch.randn(7, 6, requires_grad=True)


def test_members_and_their_gradients(bfloat16):
    layer, rows = members_and_rows()
    up = torch.randn(2, 7, 5)
    with fast_float32():
        out = ensemble_hidden_linear(layer, rows)
        out.backward(up)
    x, w, g = rounded(rows), rounded(layer.weight), rounded(up)
    assert out.shape == (2, 7, 5) and out.dtype == torch.float32
    torch.testing.assert_close(out.detach().double(), x @ w + layer.bias.detach().double(), rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(rows.grad.double(), (g @ w.mT).sum(0), rtol=1e-2, atol=2e-2)
    torch.testing.assert_close(layer.weight.grad.double(), x.mT @ g, rtol=1e-2, atol=2e-2)
    torch.testing.assert_close(layer.bias.grad, up.sum(1, keepdim=True))
    assert layer.weight.grad.is_contiguous()


def test_members_outside_of_learning_are_the_layers_own(bfloat16):
    layer, rows = members_and_rows()
    assert torch.equal(ensemble_hidden_linear(layer, rows), layer(rows))
    with fast_float32():
        rough = ensemble_hidden_linear(layer, rows)
        with exact_float32():
            assert torch.equal(ensemble_hidden_linear(layer, rows), layer(rows))
    assert not torch.equal(rough, layer(rows))


def test_rows_of_another_type_are_refused():
    """They are not converted silently, which could lose precision."""
    rows, members = torch.randn(3, 4, dtype=torch.float64), EnsembleLinear(2, 4, 5)
    layer = nn.Linear(4, 5)
    for computed in (hidden_linear, hidden_matmul):
        with pytest.raises(RuntimeError, match="dtype"):
            computed(layer, rows)
    for computed in (ensemble_hidden_linear, ensemble_hidden_matmul):
        with pytest.raises(RuntimeError, match=r"dtype|scalar type"):
            computed(members, rows)
