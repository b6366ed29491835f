"""Members' layers on a CUDA device, compiled: scores are float32's, and learning is TensorFloat-32's at most."""

from __future__ import annotations

import pytest
import torch
from test_ensemble_linear import made

from intrigue.ops.matmul import member_products
from intrigue.ops.precision import exact_float32, fast_float32

pytestmark = pytest.mark.gpu
SIZES = [(5, 1024, 518, 1024), (5, 1024, 1030, 512), (3, 300, 257, 300)]
# Of |x| |w|, at most. bfloat16 would be off by 5e-4, TensorFloat-32 is by 6e-5; parts are as `test_expansion_gpu` has.
ROUNDING = {exact_float32: 2**-18, fast_float32: 2**-12}


@pytest.fixture(autouse=True)
def compiled_anew():
    """torch.compile gives up on a function of which it has seen too many forms; each test has its own few."""
    torch.compiler.reset()


@pytest.fixture
def splits(monkeypatch):
    """How often factors were split."""
    from intrigue.ops import tf32x3_kernel  # Triton is slow to import, and here only for a GPU.

    seen, split = [], tf32x3_kernel.split
    monkeypatch.setattr(tf32x3_kernel, "split", lambda *given: (seen.append(1), split(*given))[1])
    return seen


@pytest.mark.parametrize("around", ROUNDING)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_as_near_as_is_promised(splits, around, shared, sizes):
    x, weight, bias = (each.float().cuda() for each in made(*sizes, shared))
    compiled = torch.compile(member_products, fullgraph=True, dynamic=False)
    with torch.no_grad(), around():
        found = compiled(x, weight, bias)
    wanted = x.double() @ weight.double() + bias.double()
    reach = x.double().norm(dim=-1, keepdim=True) * weight.double().norm(dim=-2, keepdim=True) + bias.double().abs()
    assert found.shape == wanted.shape
    assert ((found - wanted).abs() / reach).max() <= ROUNDING[around]
    assert bool(splits) == (around is exact_float32)


@pytest.mark.parametrize("around", ROUNDING)
def test_gradients_are_the_plain_ones(splits, around):
    compiled = torch.compile(member_products, fullgraph=True, dynamic=False)
    found = []
    for function in (member_products, compiled):
        given = [each.float().cuda().requires_grad_() for each in made(5, 512, 518, 256, shared=True)]
        with around():
            function(*given).square().mean().backward()
        found.append([each.grad for each in given])
    assert not splits, "what is split has no gradients"
    for plain, other in zip(*found, strict=True):
        torch.testing.assert_close(other, plain, rtol=2e-2, atol=2e-3 * plain.abs().max().item())
