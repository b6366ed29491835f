"""The kernels of `intrigue::output_layer` on a CUDA device: values, gradients, repeats, maps, graphs, torch.compile."""

from __future__ import annotations

import pytest
import torch
from test_output_layer import check

from cuda_graph import captured
from intrigue.agents.ddpg_networks import Actor, TwinCritic
from intrigue.ops.output_layer import OUTPUT_LAYER, is_supported
from intrigue.ops.precision import exact_float32
from intrigue.training.stacked.modules import stack_modules
from output_layer_cases import CASES, NAMES, computed, random_case

pytestmark = pytest.mark.gpu


def test_this_device_runs_the_kernels():
    assert is_supported(torch.device("cuda"), torch.float32, 1024, 6)


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name):
    with exact_float32():
        check(computed(CASES[name], "cuda"), CASES[name], times=5)  # sums in other orders


@pytest.mark.parametrize("outputs", [1, 6, 12])
@pytest.mark.parametrize("low", [False, True])
def test_repeats_to_the_bit(outputs, low):
    case = random_case(1024, 1024, outputs, low=low, lead=(2,))
    first = computed(case, "cuda")
    for _ in range(5):
        again = computed(case, "cuda")
        assert all(torch.equal(again[what], first[what]) for what in NAMES)


def test_seeds_together_are_seeds_alone():
    given = [each.cuda() for each in random_case(1024, 1024, 6, low=True, lead=(3,)).given]
    together = torch.func.vmap(OUTPUT_LAYER)(*given)
    for seed in range(3):
        assert torch.equal(together[seed], OUTPUT_LAYER(*(each[seed] for each in given)))


def test_nan_stays_nan():
    (p, *rest), _, _ = random_case(3, 32, 2, seed=2)
    p[0, 5] = float("nan")
    y = OUTPUT_LAYER(p.cuda(), *(each.cuda() for each in rest))
    assert y[0].isnan().all() and y[1:].isfinite().all()


def test_captured_in_a_graph():
    given = [each.cuda() for each in random_case(1024, 1024, 6, low=True).given]

    def step():
        leaves = [each.detach().requires_grad_() for each in given]  # each time anew: none remembers another stream
        y = OUTPUT_LAYER(*leaves)
        return y.detach(), torch.autograd.grad(y.square().sum(), leaves)

    graph, (y, gradients) = captured(step)
    given[0].copy_(random_case(1024, 1024, 6, low=True, seed=9).given[0])
    graph.replay()
    wanted, plain = step()
    assert torch.equal(y, wanted)
    assert all(torch.equal(one, other) for one, other in zip(gradients, plain, strict=True))


@pytest.mark.parametrize("seeds", [1, 3])
def test_networks_compiled_in_a_stack(seeds):
    """An actor's and a critic's losses and gradients, by the kernels in compiled code and by plain layers on a CPU."""
    torch.manual_seed(0)
    pairs = [torch.nn.ModuleList([Actor(5, 3, 64), TwinCritic(5, 3, 64)]) for _ in range(seeds)]
    x, none = torch.randn(seeds, 70, 5), torch.zeros(seeds, 70, 0)

    def losses(pair, x, none):
        return (pair[1](x, none, pair[0](x, none)) * 3).square().mean()

    plain = [
        torch.autograd.grad(losses(*each), list(each[0].parameters())) for each in zip(pairs, x, none, strict=True)
    ]

    class Both(torch.nn.Module):
        def __init__(self, pair):
            super().__init__()
            self.pair = pair

        def loss(self, x, none):
            return losses(self.pair, x, none)

    stacked = stack_modules([Both(pair.cuda()) for pair in pairs])
    compiled = torch.compile(lambda x, none: stacked.call("loss", x, none).sum(), fullgraph=seeds == 1)
    with exact_float32():
        found = torch.autograd.grad(compiled(x.cuda(), none.cuda()), list(stacked.leaves.values()))
    for one, *others in zip(found, *plain, strict=True):
        torch.testing.assert_close(one.cpu(), torch.stack(others).reshape(one.shape), rtol=1e-3, atol=1e-5)


def test_nothing_waits():
    given = [each.cuda().requires_grad_() for each in random_case(1024, 1024, 6, low=True).given]
    torch.autograd.grad(OUTPUT_LAYER(*given).sum(), given)
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.autograd.grad(OUTPUT_LAYER(*given).sum(), given)
    finally:
        torch.cuda.set_sync_debug_mode("default")
