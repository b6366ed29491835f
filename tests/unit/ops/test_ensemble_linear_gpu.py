"""Ensemble layers on a CUDA device, compiled: scores have float32 accuracy, learning has at least TF32's."""

from __future__ import annotations

import pytest
import torch
from test_ensemble_linear import made

from intrigue.ops.matmul import ensemble_linear
from intrigue.ops.precision import exact_float32, fast_float32

pytestmark = pytest.mark.gpu
SIZES = [(5, 1024, 518, 1024), (5, 1024, 1030, 512), (3, 300, 257, 300)]
# Of |x| |w|, at most. bfloat16 would be off by 5e-4, TF32 is by 6e-5; 3xTF32 as in `test_tf32x3_gpu`.
ROUNDING = {exact_float32: 2**-18, fast_float32: 2**-12}


@pytest.fixture(autouse=True)
def compiled_anew():
    """torch.compile gives up on a function after too many variants; each test starts afresh."""
    torch.compiler.reset()


@pytest.fixture
def splits(monkeypatch):
    """Counts how often factors were split."""
    from intrigue.ops import tf32x3_kernel  # Triton is slow to import, and here only for a GPU.

    seen, split = [], tf32x3_kernel.split
    monkeypatch.setattr(tf32x3_kernel, "split", lambda *given: (seen.append(1), split(*given))[1])
    return seen


@pytest.mark.parametrize("around", ROUNDING)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_accuracy(splits, around, shared, sizes):
    x, weight, bias = (each.float().cuda() for each in made(*sizes, shared))
    compiled = torch.compile(ensemble_linear, fullgraph=True, dynamic=False)
    with torch.no_grad(), around():
        found = compiled(x, weight, bias)
    wanted = x.double() @ weight.double() + bias.double()
    reach = x.double().norm(dim=-1, keepdim=True) * weight.double().norm(dim=-2, keepdim=True) + bias.double().abs()
    assert found.shape == wanted.shape
    assert ((found - wanted).abs() / reach).max() <= ROUNDING[around]
    assert bool(splits) == (around is exact_float32)


@pytest.mark.parametrize("around", ROUNDING)
def test_gradients_are_the_plain_ones(splits, around):
    compiled = torch.compile(ensemble_linear, fullgraph=True, dynamic=False)
    found = []
    for function in (ensemble_linear, compiled):
        given = [each.float().cuda().requires_grad_() for each in made(5, 512, 518, 256, shared=True)]
        with around():
            function(*given).square().mean().backward()
        found.append([each.grad for each in given])
    assert not splits, "3xTF32 has no gradients"
    for plain, other in zip(*found, strict=True):
        torch.testing.assert_close(other, plain, rtol=2e-2, atol=2e-3 * plain.abs().max().item())
