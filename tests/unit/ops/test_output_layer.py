"""ReLU and a layer of few outputs in one operator: kernels against float64, opcheck, vmap, compiled, layers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import library, nn

from interpreted import found_by
from intrigue.agents.ddpg_networks import Actor
from intrigue.ops import output_layer as module
from intrigue.ops import triton_support
from intrigue.ops.matmul import EnsembleLinear, ensemble_hidden_linear, hidden_linear
from intrigue.ops.output_layer import (
    MAX_OUTPUTS,
    OUTPUT_LAYER,
    OUTPUT_LAYER_BACKWARD,
    ensemble_hidden_then_output,
    hidden_then_output,
    is_supported,
)
from intrigue.ops.precision import fast_float32
from intrigue.training.stacked.modules import stack_modules
from output_layer_cases import CASES, NAMES, computed, expected, random_case

pytestmark = pytest.mark.xdist_group("output_layer")  # one process: the interpreter runs once

TOLERANCE = 2e-6  # of the largest entry: sums of up to 1024 products of float32
TOLERANCE_LOW = 2**-8  # of a number in bfloat16


def distance(found, wanted):
    """The largest deviation, in units of the largest entry, of 1 at least."""
    if not found.numel():
        return 0.0
    return float((found.double() - wanted).abs().max() / wanted.abs().max().clamp_min(1))


def check(found, case, times=1):
    """Values are those of float64, in the dtypes of the inputs."""
    wanted = expected(case)
    for what, type_ in zip(NAMES, (torch.float32, *(each.dtype for each in case.given)), strict=True):
        assert found[what].dtype == type_, what
        assert found[what].shape == wanted[what].shape, what
        most = TOLERANCE_LOW if type_ == torch.bfloat16 else times * TOLERANCE
        assert distance(found[what], wanted[what]) <= most, what


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    """The kernels' results for every case."""
    return torch.load(found_by("output_layer_interpreted.py", tmp_path_factory))


@pytest.mark.parametrize("name", CASES)
def test_kernels(interpreted, name):
    check(interpreted["cases"][name], CASES[name])


def test_kernels_were_launched(interpreted):
    """In every case, twice in some, and for each pair of layers. The fallback gives the same numbers."""
    assert min(interpreted["calls"]) >= len(CASES) + len(interpreted["again"])
    assert min(interpreted["calls of layers"]) >= len(interpreted["layers"])


@pytest.mark.parametrize("name", CASES)
def test_operator_without_kernels(name):
    check(computed(CASES[name]), CASES[name])


def test_kernels_repeat_to_the_bit(interpreted):
    for name, again in interpreted["again"].items():
        assert all(torch.equal(again[what], interpreted["cases"][name][what]) for what in NAMES)


def test_gradient_at_zero_is_zero(interpreted):
    for found in (interpreted["cases"]["at zero"], computed(CASES["at zero"])):
        assert found["p"][:, ::3].eq(0).all()
        assert found["p"].ne(0).any()


def test_nan_stays_nan(interpreted):
    found = interpreted["nan"]
    assert found["y"][0].isnan().all()
    assert found["y"][1].isinf().all()
    assert found["y"][2].isfinite().all()
    slope = random_case(3, 32, 2, seed=2).given[2].sum(0)  # of the sum of both outputs
    torch.testing.assert_close(found["p"][0, 5], slope[5])
    torch.testing.assert_close(found["p"][1, 7], slope[7])


@pytest.mark.parametrize("name", ["layers", "members"])
def test_layers_use_the_kernels(interpreted, name):
    found = interpreted["layers"][name]
    torch.testing.assert_close(found["y"], found["plain"], rtol=1e-5, atol=1e-5)
    for one, other in zip(found["gradients"], found["plain gradients"], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
        assert one.is_contiguous()


def without_bias(p, bias, weight, last):
    return p.relu() @ weight.mT + last.unsqueeze(-2) + 0 * bias.sum(-1)[..., None, None]


def without_relu(p, bias, weight, last):
    return (p + bias.unsqueeze(-2)) @ weight.mT + last.unsqueeze(-2)


@pytest.mark.parametrize("mistake", [without_bias, without_relu])
def test_tolerance_tells_mistakes_apart(mistake):
    case = CASES["130 1024 6 low"]
    wrong, right = expected(case, mistake), expected(case)
    for what in ("y", "p", "weight"):
        assert distance(wrong[what], right[what]) > 10 * TOLERANCE_LOW


@pytest.mark.parametrize("place", range(4))
def test_only_inputs_that_require_grad_get_one(place):
    given = list(random_case(6, 32, 2).given)
    given[place].requires_grad_()
    (gradient,) = torch.autograd.grad(OUTPUT_LAYER(*given).square().sum(), given[place])
    wanted = expected(random_case(6, 32, 2)._replace(dy=2 * OUTPUT_LAYER(*given).detach()))[NAMES[1 + place]]
    assert distance(gradient, wanted) < 1e-5


def test_no_second_derivative():
    given = [each.requires_grad_() for each in random_case(6, 32, 2).given]
    (gradient,) = torch.autograd.grad(OUTPUT_LAYER(*given).square().sum(), given[0], create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        gradient.sum().backward()


@pytest.mark.parametrize("lead", [(), pytest.param((2,), marks=pytest.mark.slow)])
def test_opcheck(lead):
    for low in (False, True):
        case = random_case(6, 32, 2, low=low, lead=lead)
        library.opcheck(OUTPUT_LAYER, tuple(each.requires_grad_() for each in case.given))
        plain = [each.detach() for each in case.given]
        for sums in (True, False):
            library.opcheck(OUTPUT_LAYER_BACKWARD, (case.dy, *plain[:3], sums))


@pytest.mark.parametrize("lead", [(3,), (2, 3)])
def test_mapped_once_and_twice(lead):
    case = random_case(6, 32, 2, lead=lead, seed=3)

    def mapped(function):
        return torch.func.vmap(function) if len(lead) == 1 else torch.func.vmap(torch.func.vmap(function))

    y = mapped(OUTPUT_LAYER)(*case.given)
    dp, parts = mapped(lambda *each: OUTPUT_LAYER_BACKWARD(*each, True))(case.dy, *case.given[:3])
    for where in np.ndindex(*lead):
        alone = expected(case._replace(given=tuple(each[where] for each in case.given), dy=case.dy[where]))
        *weight, bias = parts[where].sum(-2)
        found = {"y": y[where], "p": dp[where], "bias": bias, "weight": torch.stack(weight)}
        for what, each in found.items():
            assert each.shape == alone[what].shape, what
            assert distance(each, alone[what]) < 1e-5, what


def layers():
    torch.manual_seed(3)
    hidden, output = nn.Linear(7, 64), nn.Linear(64, 3)
    first, second = EnsembleLinear(2, 7, 64), EnsembleLinear(2, 64, 1)
    return (hidden, output), (first, second)


@pytest.mark.parametrize("learning", [False, True])
def test_without_kernels_they_are_the_layers_bit_for_bit(bfloat16, learning):
    (hidden, output), (first, second) = layers()
    x = torch.randn(6, 7)
    with fast_float32() if learning else torch.no_grad():
        assert torch.equal(hidden_then_output(hidden, output, x), output(hidden_linear(hidden, x).relu()))
        assert torch.equal(hidden_then_output(hidden, output, x[0]), output(hidden(x[0]).relu()))
        assert torch.equal(
            ensemble_hidden_then_output(first, second, x), second(ensemble_hidden_linear(first, x).relu())
        )


@pytest.mark.parametrize("low", [False, True])
def test_the_operator_equals_the_layers(monkeypatch, bfloat16, low):
    """Its inputs are the product of the hidden layer without the bias, and each bias once."""
    (hidden, output), (first, second) = layers()
    for each in (first.bias, second.bias):
        nn.init.normal_(each)
    x = torch.randn(6, 7)

    def both():
        weights = [weight for layer in (hidden, output, first, second) for weight in layer.parameters()]
        found = [hidden_then_output(hidden, output, x), ensemble_hidden_then_output(first, second, x)]
        return [*found, *torch.autograd.grad(sum(each.square().sum() for each in found), weights)]

    with fast_float32() if low else torch.enable_grad():
        plain = both()
        monkeypatch.setattr(module, "is_supported", lambda device, dtype, width, outputs: device.type != "cpu")
        assert all(torch.equal(one, other) for one, other in zip(both(), plain, strict=True))
        monkeypatch.setattr(module, "is_supported", lambda *_: True)
        monkeypatch.setattr(module, "_uses_kernel", lambda *_: False)
        for one, other in zip(both(), plain, strict=True):
            torch.testing.assert_close(one, other, rtol=2e-2, atol=5e-2 if low else 1e-4)


@pytest.mark.parametrize("seeds", [1, 3])
def test_gradients_of_seeds_have_the_layout_of_their_weights(monkeypatch, seeds):
    """For several outputs and seeds those of the operator do not, and the Adam kernels need contiguous memory."""
    torch.manual_seed(0)
    actors = [Actor(5, 3, 64) for _ in range(seeds)]
    x, none = torch.randn(seeds, 9, 5), torch.zeros(seeds, 9, 0)
    lone = [
        torch.autograd.grad(each(*given).sum(), list(each.parameters()))
        for each, *given in zip(actors, x, none, strict=True)
    ]
    monkeypatch.setattr(module, "is_supported", lambda *_: True)
    monkeypatch.setattr(module, "_uses_kernel", lambda *_: False)
    stacked = stack_modules(actors)
    stacked.call("forward", x, none).sum().backward()
    for leaf, *alone in zip(stacked.leaves.values(), *lone, strict=True):
        assert leaf.grad is not None and leaf.grad.is_contiguous()
        torch.testing.assert_close(leaf.grad, torch.stack(alone), rtol=1e-4, atol=1e-5)


def test_supported_sizes(monkeypatch):
    monkeypatch.setattr(triton_support, "TRITON_AVAILABLE", True)
    gpu, single = torch.device("cuda"), torch.float32
    assert is_supported(gpu, single, 1024, 6)
    assert is_supported(gpu, single, 32, MAX_OUTPUTS)
    assert not is_supported(gpu, single, 1024, MAX_OUTPUTS + 1)
    assert not is_supported(gpu, single, 1024, 0)
    assert not is_supported(gpu, single, 1000, 6)
    assert not is_supported(gpu, single, 2048, 6)
    assert not is_supported(gpu, torch.float64, 1024, 6)
    assert not is_supported(torch.device("cpu"), single, 1024, 6)
    monkeypatch.setattr(triton_support, "NVIDIA", False)
    assert not is_supported(gpu, single, 1024, 6)
    monkeypatch.setattr(triton_support, "NVIDIA", True)
    monkeypatch.setattr(triton_support, "TRITON_AVAILABLE", False)
    assert not is_supported(gpu, single, 1024, 6)
