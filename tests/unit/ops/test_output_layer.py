"""ReLU and a layer of few outputs at once: kernels against float64, the operator against torch's promises, layers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import library, nn

from interpreted import found_by
from intrigue.agents.ddpg_networks import Actor
from intrigue.ops import output_layer as module
from intrigue.ops import triton_support
from intrigue.ops.matmul import EnsembleLinear, wide_linear, wide_members
from intrigue.ops.output_layer import (
    MOST_OUTPUTS,
    NARROW,
    NARROW_BACKWARD,
    members_wide_then_narrow,
    suits,
    wide_then_narrow,
)
from intrigue.ops.precision import fast_float32
from intrigue.training.stacked.modules import stack_modules
from output_layer_cases import CASES, NAMES, computed, expected, random_case

pytestmark = pytest.mark.xdist_group("narrow")  # one process: what the interpreter takes, it takes once

TOLERANCE = 2e-6  # of the largest entry: sums of up to 1024 products of float32
TOLERANCE_LOW = 2**-8  # of a number in bfloat16


def distance(found, wanted):
    """The largest deviation, in units of the largest entry, of 1 at least."""
    if not found.numel():
        return 0.0
    return float((found.double() - wanted).abs().max() / wanted.abs().max().clamp_min(1))


def check(found, case, times=1):
    """What was found is what float64 gives, in the types that were given."""
    wanted = expected(case)
    for what, type_ in zip(NAMES, (torch.float32, *(each.dtype for each in case.given)), strict=True):
        assert found[what].dtype == type_, what
        assert found[what].shape == wanted[what].shape, what
        most = TOLERANCE_LOW if type_ == torch.bfloat16 else times * TOLERANCE
        assert distance(found[what], wanted[what]) <= most, what


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    """What the kernels make of every case."""
    return torch.load(found_by("output_layer_interpreted.py", tmp_path_factory))


@pytest.mark.parametrize("name", CASES)
def test_kernels(interpreted, name):
    check(interpreted["cases"][name], CASES[name])


def test_kernels_were_taken(interpreted):
    """Of every case and again; and once for each pair of layers. What stands in for them gives the same numbers."""
    assert min(interpreted["calls"]) >= len(CASES) + len(interpreted["again"])
    assert min(interpreted["calls of layers"]) >= len(interpreted["layers"])


@pytest.mark.parametrize("name", CASES)
def test_operator_without_kernels(name):
    check(computed(CASES[name]), CASES[name])


def test_kernels_repeat_to_the_bit(interpreted):
    for name, again in interpreted["again"].items():
        assert all(torch.equal(again[what], interpreted["cases"][name][what]) for what in NAMES)


def test_gradient_at_zero_is_none(interpreted):
    for found in (interpreted["cases"]["at zero"], computed(CASES["at zero"])):
        assert found["p"][:, ::3].eq(0).all()
        assert found["p"].ne(0).any()


def test_what_is_no_number_stays_so(interpreted):
    found = interpreted["no number"]
    assert found["y"][0].isnan().all()
    assert found["y"][1].isinf().all()
    assert found["y"][2].isfinite().all()
    slope = random_case(3, 32, 2, seed=2).given[2].sum(0)  # of the sum of both outputs
    torch.testing.assert_close(found["p"][0, 5], slope[5])
    torch.testing.assert_close(found["p"][1, 7], slope[7])


@pytest.mark.parametrize("name", ["layers", "members"])
def test_layers_take_the_kernels(interpreted, name):
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
def test_only_what_is_wanted_has_a_gradient(place):
    given = list(random_case(6, 32, 2).given)
    given[place].requires_grad_()
    (gradient,) = torch.autograd.grad(NARROW(*given).square().sum(), given[place])
    wanted = expected(random_case(6, 32, 2)._replace(dy=2 * NARROW(*given).detach()))[NAMES[1 + place]]
    assert distance(gradient, wanted) < 1e-5


def test_no_second_derivative():
    given = [each.requires_grad_() for each in random_case(6, 32, 2).given]
    (gradient,) = torch.autograd.grad(NARROW(*given).square().sum(), given[0], create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        gradient.sum().backward()


@pytest.mark.parametrize("lead", [(), pytest.param((2,), marks=pytest.mark.slow)])
def test_operator_keeps_its_promises_to_torch(lead):
    for low in (False, True):
        case = random_case(6, 32, 2, low=low, lead=lead)
        library.opcheck(NARROW, tuple(each.requires_grad_() for each in case.given))
        plain = [each.detach() for each in case.given]
        for sums in (True, False):
            library.opcheck(NARROW_BACKWARD, (case.dy, *plain[:3], sums))


@pytest.mark.parametrize("lead", [(3,), (2, 3)])
def test_mapped_once_and_twice(lead):
    case = random_case(6, 32, 2, lead=lead, seed=3)

    def mapped(function):
        return torch.func.vmap(function) if len(lead) == 1 else torch.func.vmap(torch.func.vmap(function))

    y = mapped(NARROW)(*case.given)
    dp, parts = mapped(lambda *each: NARROW_BACKWARD(*each, True))(case.dy, *case.given[:3])
    for where in np.ndindex(*lead):
        alone = expected(case._replace(given=tuple(each[where] for each in case.given), dy=case.dy[where]))
        *weight, bias = parts[where].sum(-2)
        found = {"y": y[where], "p": dp[where], "bias": bias, "weight": torch.stack(weight)}
        for what, each in found.items():
            assert each.shape == alone[what].shape, what
            assert distance(each, alone[what]) < 1e-5, what


def layers():
    torch.manual_seed(3)
    wide, narrow = nn.Linear(7, 64), nn.Linear(64, 3)
    first, second = EnsembleLinear(2, 7, 64), EnsembleLinear(2, 64, 1)
    return (wide, narrow), (first, second)


@pytest.mark.parametrize("learning", [False, True])
def test_without_kernels_they_are_the_layers_to_the_bit(bfloat16, learning):
    (wide, narrow), (first, second) = layers()
    x = torch.randn(6, 7)
    with fast_float32() if learning else torch.no_grad():
        assert torch.equal(wide_then_narrow(wide, narrow, x), narrow(wide_linear(wide, x).relu()))
        assert torch.equal(wide_then_narrow(wide, narrow, x[0]), narrow(wide(x[0]).relu()))
        assert torch.equal(members_wide_then_narrow(first, second, x), second(wide_members(first, x).relu()))


@pytest.mark.parametrize("low", [False, True])
def test_the_operator_stands_for_the_layers(monkeypatch, bfloat16, low):
    """What is handed to it is what the layers are made of: their product without the bias, and each bias once."""
    (wide, narrow), (first, second) = layers()
    for each in (first.bias, second.bias):
        nn.init.normal_(each)
    x = torch.randn(6, 7)

    def both():
        weights = [weight for layer in (wide, narrow, first, second) for weight in layer.parameters()]
        found = [wide_then_narrow(wide, narrow, x), members_wide_then_narrow(first, second, x)]
        return [*found, *torch.autograd.grad(sum(each.square().sum() for each in found), weights)]

    with fast_float32() if low else torch.enable_grad():
        plain = both()
        monkeypatch.setattr(module, "suits", lambda device, dtype, width, outputs: device.type != "cpu")
        assert all(torch.equal(one, other) for one, other in zip(both(), plain, strict=True))
        monkeypatch.setattr(module, "suits", lambda *_: True)
        monkeypatch.setattr(module, "_taken", lambda *_: False)
        for one, other in zip(both(), plain, strict=True):
            torch.testing.assert_close(one, other, rtol=2e-2, atol=5e-2 if low else 1e-4)


@pytest.mark.parametrize("seeds", [1, 3])
def test_gradients_of_seeds_lie_as_their_weights_do(monkeypatch, seeds):
    """Of several outputs and seeds the operator's do not; kernels of Adam read memory as it lies."""
    torch.manual_seed(0)
    actors = [Actor(5, 3, 64) for _ in range(seeds)]
    x, none = torch.randn(seeds, 9, 5), torch.zeros(seeds, 9, 0)
    lone = [
        torch.autograd.grad(each(*given).sum(), list(each.parameters()))
        for each, *given in zip(actors, x, none, strict=True)
    ]
    monkeypatch.setattr(module, "suits", lambda *_: True)
    monkeypatch.setattr(module, "_taken", lambda *_: False)
    stacked = stack_modules(actors)
    stacked.call("forward", x, none).sum().backward()
    for leaf, *alone in zip(stacked.leaves.values(), *lone, strict=True):
        assert leaf.grad is not None and leaf.grad.is_contiguous()
        torch.testing.assert_close(leaf.grad, torch.stack(alone), rtol=1e-4, atol=1e-5)


def test_what_the_kernels_take(monkeypatch):
    monkeypatch.setattr(triton_support, "TRITON_WORKS", True)
    gpu, single = torch.device("cuda"), torch.float32
    assert suits(gpu, single, 1024, 6)
    assert suits(gpu, single, 32, MOST_OUTPUTS)
    assert not suits(gpu, single, 1024, MOST_OUTPUTS + 1)
    assert not suits(gpu, single, 1024, 0)
    assert not suits(gpu, single, 1000, 6)
    assert not suits(gpu, single, 2048, 6)
    assert not suits(gpu, torch.float64, 1024, 6)
    assert not suits(torch.device("cpu"), single, 1024, 6)
    monkeypatch.setattr(triton_support, "NVIDIA", False)
    assert not suits(gpu, single, 1024, 6)
    monkeypatch.setattr(triton_support, "NVIDIA", True)
    monkeypatch.setattr(triton_support, "TRITON_WORKS", False)
    assert not suits(gpu, single, 1024, 6)
