"""Members' layers on a CUDA device, compiled: scores are float32's, and learning is TensorFloat-32's at most."""

from __future__ import annotations

import pytest
import torch
from test_member_products import made

from intrigue.member_products import member_products
from intrigue.precision import exact_float32, fast_float32

pytestmark = pytest.mark.gpu
SIZES = [(5, 1024, 518, 1024), (5, 1024, 1030, 512), (3, 300, 257, 300)]
ROUNDING = {exact_float32: 2**-18, fast_float32: 2**-9}  # of |x| |w|


@pytest.mark.parametrize("around", ROUNDING)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_as_near_as_is_promised(around, shared, sizes):
    x, weight, bias = (each.float().cuda() for each in made(*sizes, shared))
    compiled = torch.compile(member_products, fullgraph=True, dynamic=False)
    with torch.no_grad(), around():
        found = compiled(x, weight, bias)
    wanted = x.double() @ weight.double() + bias.double()
    reach = x.double().norm(dim=-1, keepdim=True) * weight.double().norm(dim=-2, keepdim=True) + bias.double().abs()
    assert found.shape == wanted.shape
    assert ((found - wanted).abs() / reach).max() <= ROUNDING[around]


def test_gradients_are_the_plain_ones():
    compiled = torch.compile(member_products, fullgraph=True, dynamic=False)
    found = []
    for function in (member_products, compiled):
        given = [each.float().cuda().requires_grad_() for each in made(5, 512, 518, 256, shared=True)]
        with fast_float32():
            function(*given).square().mean().backward()
        assert all(each.grad.is_contiguous() for each in given)
        found.append([each.grad for each in given])
    for plain, other in zip(*found, strict=True):
        torch.testing.assert_close(other, plain, rtol=2e-2, atol=2e-3 * plain.abs().max().item())
