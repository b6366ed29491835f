"""The Adam kernels on a CUDA device: the interpreter's cases, torch's fused Adam in CUDA graphs, unaligned memory."""

from __future__ import annotations

import pytest
import torch
from test_adam import SKIPPED, assert_all_close

from adam_cases import CASES, KEPT, begin, by_kernels, by_torch, stacked_steps
from cuda_graph import captured
from intrigue.ops.adam import AdamScalars, adam_step, precompute_scalars

pytestmark = pytest.mark.gpu
SHAPES = [(1024, 1024), (1024,), (1, 1024), (1,), (300, 1025), (77, 3)]
BETAS, EPS = (0.9, 0.999), 1e-8


@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_torch(name):
    assert_all_close(by_kernels(CASES[name], "cuda"), by_torch(CASES[name]))


@pytest.mark.parametrize("name", SKIPPED)
def test_a_skipped_step_leaves_everything_to_the_bit(name):
    case = CASES[name]
    states = [begin(case)[0], *by_kernels(case, "cuda")]
    for time in range(case.steps):
        for kept in ("weight", *KEPT):
            pairs = zip(states[time][kept], states[time + 1][kept], strict=True)
            assert [torch.equal(*pair) for pair in pairs] == [time in case.skipped] * len(case.shapes), (kept, time)


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_stack_steps_by_kernels_as_by_torch(seeds):
    wanted = stacked_steps(seeds, capturable=False, device="cuda")
    for found, due in zip(stacked_steps(seeds, capturable=True, device="cuda"), wanted, strict=True):
        for name in due:
            torch.testing.assert_close(found[name], due[name], rtol=2e-6, atol=1e-6, msg=name.__add__)


def step(weights, gradients, firsts, seconds, steps, rate, losses, refused):
    scalars = AdamScalars.zeros(len(weights), torch.device("cuda"))
    precompute_scalars(scalars, steps, rate, betas=BETAS, losses=losses, nonfinite_counts=refused)
    adam_step(weights, gradients, firsts, seconds, steps, scalars, places=range(len(weights)), betas=BETAS, eps=EPS)


def test_twenty_captured_steps_are_torchs_fused_ones():
    rng = torch.Generator("cuda").manual_seed(0)
    weights = [torch.nn.Parameter(torch.randn(shape, generator=rng, device="cuda")) for shape in SHAPES]
    rate = torch.tensor(1e-2, device="cuda")
    theirs = torch.optim.Adam(weights, lr=rate, fused=True, capturable=True, betas=BETAS, eps=EPS)
    skip = torch.zeros((), device="cuda")
    vars(theirs)["found_inf"] = skip
    losses, refused = torch.ones(3, device="cuda"), torch.zeros(3, device="cuda")
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    ours = [weight.detach().clone() for weight in weights]
    moments = [[torch.zeros_like(each) for each in ours] for _ in range(2)]
    steps = [torch.zeros((), device="cuda") for _ in ours]
    gradients = [weight.grad for weight in weights]

    def our_step():
        step(ours, gradients, *moments, steps, rate, losses, refused)

    with torch.no_grad():
        graphs = [captured(work)[0] for work in (theirs.step, our_step)]
        for time in range(20):
            for gradient in gradients:
                gradient.normal_(generator=rng)
            skip.fill_(float(time % 7 == 3))
            losses.fill_(1.0)
            if time % 7 == 3:  # steps 3, 10 and 17
                losses[time % 2] = float("-inf")
            rate.fill_(1e-2 / (1 + time))
            for graph in graphs:
                graph.replay()
    kept = [theirs.state[weight] for weight in weights]
    assert [each.item() for each in steps] == [each["step"].item() for each in kept] == [18.0] * len(SHAPES)
    assert refused.tolist() == [1.0, 2.0, 0.0]
    # torch 2.11's second moment is that of β₂ in float32, whose 1 − β₂ is off by 1.3e-5; against float64 see above.
    for name, found, wanted, most in [
        ("weight", ours, weights, 1e-6),
        ("first", moments[0], [each["exp_avg"] for each in kept], 1e-6),
        ("second", moments[1], [each["exp_avg_sq"] for each in kept], 2e-5),
    ]:
        for one, other in zip(found, wanted, strict=True):
            worst = ((one - other).abs().max() / other.abs().max()).item()
            assert worst < most, (name, tuple(one.shape), worst)


def test_memory_that_begins_anywhere_and_ends_exactly():
    """Tensors that are no multiple of 16 bytes into their storage; nothing before or behind them is touched."""
    for size in (1, 7, 1023, 1024, 1025, 4097):
        held = [torch.full((size + 8,), 3.0, device="cuda") for _ in range(4)]
        weight, gradient, first, second = (each[3 : 3 + size] for each in held)
        zero = torch.zeros((), device="cuda")
        step([weight], [gradient], [first], [second], [zero], zero + 0.1, zero.new_zeros(1), zero.new_zeros(1))
        for each in held:
            assert (each[:3] == 3).all() and (each[3 + size :] == 3).all()
        assert (gradient == 3).all() and not (weight == 3).any()


def test_autograd_notices_that_a_weight_has_changed():
    weight = torch.nn.Parameter(torch.ones(5, device="cuda"))
    loss = weight.square().sum()
    others = [[torch.ones(5, device="cuda")] for _ in range(3)]
    zero = torch.zeros((), device="cuda")
    step([weight], *others, [zero.clone()], zero + 0.1, zero.new_zeros(1), zero.new_zeros(1))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
