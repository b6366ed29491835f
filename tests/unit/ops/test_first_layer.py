"""Linear, LayerNorm and tanh in one operator: kernels against float64, opcheck, vmap, compiled, the module."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import library, nn

from first_layer_cases import CASES, EPS, NAMES, by_numpy, computed, expected, random_case
from interpreted import found_by
from intrigue.ops import first_layer as module
from intrigue.ops import triton_support
from intrigue.ops.first_layer import FIRST_LAYER, FIRST_LAYER_BACKWARD, MAX_INPUTS, FirstLayer, uses_kernel
from intrigue.ops.precision import exact_float32, fast_float32
from intrigue.training.stacked.modules import stack_modules

pytestmark = pytest.mark.xdist_group("first_layer")  # one process: the interpreter runs once

TOLERANCE = 2e-5  # of the largest entry: sums of up to 512 products of float32
# At 1000 a float32 is off by up to 3e-5, as is the mean of 512 of them; the spread is 1.
TOLERANCE_FAR = 5e-4
TOLERANCE_LOW = 2**-9 + TOLERANCE  # of y in bfloat16, which is at most 1


def tolerance(name, what):
    """The tolerance of this result in this case."""
    if what == "y" and CASES[name].low:
        return TOLERANCE_LOW
    return TOLERANCE_FAR if name == "far from zero" else TOLERANCE


def distance(found, wanted):
    """The largest deviation, in units of the largest entry, of 1 at least."""
    return np.abs(np.asarray(found, np.float64) - wanted).max(initial=0) / max(1, np.abs(wanted).max(initial=0))


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    """The kernels' results for every case."""
    return torch.load(found_by("first_layer_interpreted.py", tmp_path_factory))


def test_kernels_were_launched(interpreted):
    """In every case, twice in some: the fallback gives the same numbers."""
    assert min(interpreted["calls"]) >= len(CASES) + len(interpreted["again"])


@pytest.mark.parametrize("name", CASES)
def test_kernels(interpreted, name):
    found, wanted = interpreted["cases"][name], expected(CASES[name])
    for what in NAMES:
        assert found[what].dtype == (torch.bfloat16 if what == "y" and CASES[name].low else torch.float32)
        assert found[what].shape == wanted[what].shape, what
        assert distance(found[what].float(), wanted[what]) <= tolerance(name, what), what


def test_kernel_tanh_from_end_to_end(interpreted):
    found, wanted = interpreted["cases"]["saturated"]["y"], by_numpy(CASES["saturated"])["y"]
    assert np.abs(found.double().numpy() - wanted).max() < 1e-6
    assert found[:, 0].eq(-1).all() and found[:, -1].eq(1).all()


def test_kernels_repeat_to_the_bit(interpreted):
    for name, again in interpreted["again"].items():
        assert all(torch.equal(again[what], interpreted["cases"][name][what]) for what in NAMES)


def test_module_uses_kernels_on_any_leading_axes(interpreted):
    found = interpreted["module"]
    assert found["y"].shape == (2, 5, 64)
    torch.testing.assert_close(found["y"], found["plain y"], rtol=0, atol=1e-6)
    torch.testing.assert_close(found["gradient"], found["plain gradient"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in CASES if name != "far from zero"])
def test_operator_without_kernels(name):
    found, wanted = computed(CASES[name]), expected(CASES[name])
    for what in NAMES:
        assert distance(found[what].float(), wanted[what]) <= tolerance(name, what), what


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].low])
def test_low_rounds_the_output_and_nothing_else(interpreted, name):
    exactly = computed(CASES[name]._replace(low=False))
    assert torch.equal(computed(CASES[name])["y"], exactly["y"].bfloat16())
    by_kernel = interpreted["cases"][name]["y"].float()
    assert (by_kernel - exactly["y"]).abs().max() <= TOLERANCE_LOW


@pytest.mark.parametrize(("mistake", "what"), [("gain", "y"), ("axis", "y"), ("variance", "y"), ("term", "weight")])
def test_tolerance_tells_mistakes_apart(mistake, what):
    case = CASES["64 24 512"]
    assert distance(by_numpy(case, mistake)[what], by_numpy(case)[what]) > 10 * TOLERANCE


@pytest.mark.parametrize("place", range(5))
def test_numpy_gradients_by_differences(place):
    case = random_case(3, 4, 6, seed=1)
    given = [each.double() for each in case.given]

    def worth(moved):
        return float((by_numpy(case._replace(given=tuple(moved)))["y"] * case.dy.double().numpy()).sum())

    gradient = by_numpy(case)[NAMES[1 + place]]
    for where in np.ndindex(*given[place].shape):
        sides = []
        for step in (1e-5, -1e-5):
            moved = [each.clone() for each in given]
            moved[place][where] += step
            sides.append(worth(moved))
        assert (sides[0] - sides[1]) / 2e-5 == pytest.approx(gradient[where], abs=1e-7)


def test_only_inputs_that_require_grad_get_one():
    x, *weights = random_case(6, 5, 32).given
    y = FIRST_LAYER(x.requires_grad_(), *weights, EPS, True, False)
    y.sum().backward()
    assert x.grad is not None
    weights[0].requires_grad_()
    gradient = torch.autograd.grad(FIRST_LAYER(x.detach(), *weights, EPS, True, False).sum(), weights[0])[0]
    assert gradient.shape == (32, 5)


def test_no_second_derivative():
    x, *weights = (each.requires_grad_() for each in random_case(6, 5, 32).given)
    gradient = torch.autograd.grad(FIRST_LAYER(x, *weights, EPS, True, False).square().sum(), x, create_graph=True)[0]
    with pytest.raises(RuntimeError, match="no second derivative"):
        gradient.sum().backward()


@pytest.mark.parametrize("lead", [(), pytest.param((2,), marks=pytest.mark.slow)])
def test_opcheck(lead):
    case = random_case(6, 5, 32, lead=lead)
    given = [each.requires_grad_() for each in case.given]
    for low in (False, True):
        library.opcheck(FIRST_LAYER, (*given, EPS, True, low))
    plain = [each.detach() for each in given]
    for sums, dy in ((True, case.dy), (False, case.dy), (True, case.dy.bfloat16())):
        library.opcheck(FIRST_LAYER_BACKWARD, (dy, *plain, EPS, True, sums))


@pytest.mark.parametrize("lead", [(3,), (2, 3)])
def test_mapped_once_and_twice(lead):
    case = random_case(6, 5, 32, lead=lead, seed=3)

    def mapped(function):
        return torch.func.vmap(function) if len(lead) == 1 else torch.func.vmap(torch.func.vmap(function))

    y = mapped(lambda *each: FIRST_LAYER(*each, EPS, True, False))(*case.given)
    dp, parts = mapped(lambda *each: FIRST_LAYER_BACKWARD(*each, EPS, True, True))(case.dy, *case.given)
    for where in np.ndindex(*lead):
        alone = by_numpy(case._replace(given=tuple(each[where] for each in case.given), dy=case.dy[where]))
        assert distance(y[where], alone["y"]) < TOLERANCE
        assert distance(dp[where] @ case.given[1][where], alone["x"]) < TOLERANCE
        for what, each in zip(("gain", "shift", "bias"), parts[where].sum(0), strict=True):
            assert distance(each, alone[what]) < TOLERANCE


class Operated(nn.Module):
    """A loss through the operator, or through the layers it replaces."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.head = FirstLayer(5, 32), nn.Linear(32, 1)

    def loss(self, x):
        dense, norm, _ = self.first
        return (
            self.head(FIRST_LAYER(x, dense.weight, dense.bias, norm.weight, norm.bias, norm.eps, True, False))
            .square()
            .mean()
        )

    def plain_loss(self, x):
        return self.head(self.first(x)).square().mean()


@pytest.mark.parametrize("backend", [None, "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize("seeds", [1, 3])
def test_stacked_and_compiled(backend, seeds):
    stacked = stack_modules([Operated(seed) for seed in range(seeds)])
    x = torch.randn(seeds, 9, 5, generator=torch.Generator().manual_seed(1))

    def losses(method, x):
        return stacked.call(method, x)

    found = losses if backend is None else torch.compile(losses, backend=backend)
    leaves = list(stacked.leaves.values())
    gradients = torch.autograd.grad(found("loss", x).sum(), leaves)
    for each, wanted in zip(gradients, torch.autograd.grad(losses("plain_loss", x).sum(), leaves), strict=True):
        torch.testing.assert_close(each, wanted, rtol=1e-5, atol=1e-6)


def test_module_is_its_layers_bit_for_bit():
    torch.manual_seed(3)
    layer = FirstLayer(7, 64)
    torch.manual_seed(3)
    layers = nn.Sequential(nn.Linear(7, 64), nn.LayerNorm(64), nn.Tanh())
    assert list(layer.state_dict()) == list(layers.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    for x in (torch.randn(7), torch.randn(6, 7), torch.randn(2, 3, 7)):
        results = []
        for each in (layer, layers):
            given = x.clone().requires_grad_()
            y = each(given)
            results.append([y, *torch.autograd.grad(y.square().sum(), [given, *each.parameters()])])
        assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@pytest.mark.parametrize("seeds", [1, 3])
def test_module_compiles_without_a_break(seeds):
    stacked = stack_modules([Operated(seed) for seed in range(seeds)])
    x = torch.randn(seeds, 9, 5)

    def losses(x):
        return stacked.call("plain_loss", x)

    broken = torch._dynamo.explain(losses)(x).break_reasons
    assert not broken
    torch.testing.assert_close(torch.compile(losses, backend="aot_eager")(x), losses(x))


@pytest.mark.parametrize(("precision", "exact"), [(exact_float32, True), (fast_float32, False)])
def test_compiled_module_knows_the_precision(monkeypatch, precision, exact):
    monkeypatch.setattr(module, "is_supported", lambda *_: True)
    monkeypatch.setattr(module, "_uses_kernel", lambda *_: False)
    seen = []

    def inspect(graph, inputs):
        seen.extend(node.args[-2] for node in graph.graph.nodes if node.target is FIRST_LAYER)
        return graph.forward

    layer, x = FirstLayer(5, 32), torch.randn(4, 5)
    compiled = torch.compile(layer, fullgraph=True, backend=inspect)
    with precision():
        torch.testing.assert_close(compiled(x), nn.Sequential(*layer)(x))
    assert seen == [exact]


def test_supported_sizes(monkeypatch):
    monkeypatch.setattr(triton_support, "TRITON_AVAILABLE", True)
    monkeypatch.setattr(module, "_shared_memory", lambda device: 227 * 1024)
    pytest.importorskip("triton", reason="Triton is published for Linux only")
    gpu, single = torch.device("cuda"), torch.float32
    assert uses_kernel(gpu, single, 24, 1024)
    assert uses_kernel(gpu, single, MAX_INPUTS, 32)
    assert not uses_kernel(gpu, single, MAX_INPUTS + 1, 1024)
    assert not uses_kernel(gpu, single, 0, 1024)
    assert not uses_kernel(gpu, single, 24, 1000)
    assert not uses_kernel(gpu, single, 24, 2048)
    assert not uses_kernel(gpu, single, 24, 16)
    assert not uses_kernel(gpu, torch.float64, 24, 1024)
    assert not uses_kernel(torch.device("cpu"), single, 24, 1024)
    # 133 KiB of two chunks of weights; smaller GPUs have 99 KiB for a program.
    monkeypatch.setattr(module, "_shared_memory", lambda device: 99 * 1024)
    assert not uses_kernel(gpu, single, 24, 1024)
    assert uses_kernel(gpu, single, 24, 512)
    monkeypatch.setattr(triton_support, "TRITON_AVAILABLE", False)
    assert not uses_kernel(gpu, single, 24, 512)
