"""The kernels of `intrigue::first_layer` on a CUDA device: values, gradients, repeats, maps, graphs, torch.compile."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_first_layer import TOLERANCE_FAR, Operated, distance, tolerance
from torch import nn

from cuda_graph import captured
from first_layer_cases import CASES, EPS, NAMES, computed, expected, random_case
from intrigue.ops.first_layer import FIRST_LAYER, FirstLayer, uses_kernel
from intrigue.ops.precision import exact_float32, fast_float32
from intrigue.training.stacked.modules import stack_modules

pytestmark = pytest.mark.gpu

# Factors of TensorFloat-32 are off by 2⁻¹⁰ at most, products by 4e-4 as the root of their mean square; five times that
# is to be expected among a million, in both ways of computing it.
TOLERANCE_TF32, MEAN_TF32 = 4e-3, 1e-3


def loss_and_gradients(layer, x):
    given = x.clone().requires_grad_()
    y = layer(given)
    return [y.detach(), *torch.autograd.grad(y.square().sum() / len(x), [given, *layer.parameters()])]


def test_this_device_runs_the_kernels():
    assert uses_kernel(torch.device("cuda"), torch.float32, 24, 512)


@pytest.mark.parametrize("name", CASES)
def test_exactly(name):
    with exact_float32():
        found, wanted = computed(CASES[name]._replace(exact=True), "cuda"), expected(CASES[name])
    for what in NAMES:
        most = 2 * TOLERANCE_FAR if name == "far from zero" else tolerance(name, what)
        assert distance(found[what].float(), wanted[what]) <= most, what


def test_tanh_from_end_to_end():
    found, wanted = computed(CASES["saturated"], "cuda")["y"], expected(CASES["saturated"])["y"]
    assert np.abs(found.double().numpy() - wanted).max() < 1e-6


@pytest.mark.parametrize("width_in", [24, 30, 33, 78])
@pytest.mark.parametrize("width_out", [512, 1024])
@pytest.mark.parametrize("fast", [False, True])
def test_module_is_near_its_layers(width_in, width_out, fast):
    torch.manual_seed(0)
    layer, x = FirstLayer(width_in, width_out).cuda(), torch.randn(1024, width_in, device="cuda")
    with fast_float32() if fast else exact_float32():
        found, plain = loss_and_gradients(layer, x), loss_and_gradients(nn.Sequential(*layer), x)
    for one, other in zip(found, plain, strict=True):
        size = max(1.0, float(other.abs().max()))
        assert float((one - other).abs().max()) < (TOLERANCE_TF32 if fast else 1e-5) * size
        assert float((one - other).square().mean().sqrt()) < (MEAN_TF32 if fast else 1e-6) * size


@pytest.mark.parametrize("exact", [False, True])
def test_repeats_to_the_bit(exact):
    case = random_case(1024, 30, 1024, exact=exact)
    first = computed(case, "cuda")
    for _ in range(5):
        again = computed(case, "cuda")
        assert all(torch.equal(again[what], first[what]) for what in NAMES)


@pytest.mark.parametrize("exact", [False, True])
def test_seeds_together_are_seeds_alone(exact):
    case = random_case(1024, 24, 1024, lead=(3,), exact=exact)
    given = [each.cuda() for each in case.given]
    together = torch.func.vmap(lambda *each: FIRST_LAYER(*each, EPS, exact, False))(*given)
    for seed in range(3):
        assert torch.equal(together[seed], FIRST_LAYER(*(each[seed] for each in given), EPS, exact, False))


def test_captured_in_a_graph():
    given = [each.cuda() for each in random_case(1024, 24, 1024).given]

    def step():
        leaves = [each.detach().requires_grad_() for each in given]  # each time anew: none remembers another stream
        y = FIRST_LAYER(*leaves, EPS, False, False)
        return y.detach(), torch.autograd.grad(y.square().sum(), leaves)

    graph, (y, gradients) = captured(step)
    given[0].copy_(random_case(1024, 24, 1024, seed=9).given[0])
    graph.replay()
    wanted, plain = step()
    assert torch.equal(y, wanted)
    assert all(torch.equal(one, other) for one, other in zip(gradients, plain, strict=True))


@pytest.mark.parametrize("seeds", [1, 3])
def test_compiled_in_a_stack(seeds):
    stacked = stack_modules([Operated(seed).cuda() for seed in range(seeds)])
    x = torch.randn(seeds, 64, 5, device="cuda")
    leaves = list(stacked.leaves.values())
    compiled = torch.compile(lambda x: stacked.call("plain_loss", x).sum(), fullgraph=seeds == 1)
    with exact_float32():
        found = torch.autograd.grad(compiled(x), leaves)
        wanted = torch.autograd.grad(stacked.call("plain_loss", x).sum(), leaves)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_nothing_waits():
    given = [each.cuda().requires_grad_() for each in random_case(1024, 24, 1024).given]
    torch.autograd.grad(FIRST_LAYER(*given, EPS, False, False).sum(), given)
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.autograd.grad(FIRST_LAYER(*given, EPS, False, False).sum(), given)
    finally:
        torch.cuda.set_sync_debug_mode("default")
