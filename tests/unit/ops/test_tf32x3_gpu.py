"""`intrigue::pairwise_scores` on a CUDA device: as accurate as float32, in any precision context."""

from __future__ import annotations

import pytest
import torch
from test_tf32x3 import ROUNDING, drawn

from intrigue.nn.knn import nearest_rows
from intrigue.ops.precision import exact_float32, fast_float32
from intrigue.ops.tf32x3 import pairwise_scores, uses_kernel

pytestmark = pytest.mark.gpu


def on_gpu(*sizes, **how):
    return [each.cuda() for each in drawn(*sizes, **how)]


@pytest.mark.parametrize("around", [exact_float32, fast_float32])
@pytest.mark.parametrize("sizes", [(1024, 1024, 1024), (256, 300, 513), (1000, 4096, 256)])
@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e9])
def test_as_accurate_as_float32(around, sizes, scale):
    query, memory, norms = on_gpu(*sizes, scale=scale)
    assert uses_kernel(query, memory)
    with around():
        found = pairwise_scores(query, memory, norms)
    wanted = norms.double() - 2 * query.double() @ memory.double().mT
    reach = 2 * query.double().norm(dim=-1, keepdim=True) * memory.double().norm(dim=-1) + norms.double()
    error = (found - wanted).abs() / reach
    # Tensor cores truncate where float32 sums round: a few times the error, still negligible against a distance.
    assert error.max() <= 4 * ROUNDING
    assert error.mean() <= ROUNDING / 4


def test_neighbours_are_those_of_float64():
    torch.manual_seed(0)
    rows = torch.randn(1024, 1024).tanh().cuda()
    with exact_float32():
        found = nearest_rows(rows, rows, 11, skip_self=True)
    distance = torch.cdist(rows.double(), rows.double())
    distance.fill_diagonal_(torch.inf)
    wanted = distance.topk(11, largest=False).indices
    # Neighbours that float32 cannot tell apart may change places.
    assert (found == wanted).float().mean() > 0.999
    torch.testing.assert_close(distance.gather(1, found), distance.gather(1, wanted), rtol=1e-6, atol=1e-6)


def test_repeats_bit_for_bit_and_equals_seeds_alone():
    given = [torch.stack([each, each.roll(1, 0)]) for each in on_gpu(512, 512, 1024)]
    with exact_float32():
        once, again = (pairwise_scores(*given) for _ in range(2))
        alone = torch.stack([pairwise_scores(*each) for each in zip(*given, strict=True)])
    assert torch.equal(once, again)
    torch.testing.assert_close(once, alone, rtol=1e-6, atol=1e-3)
