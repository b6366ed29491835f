"""3xTF32: products of split factors are as accurate as float32's; without the kernel they are torch's own."""

from __future__ import annotations

import pytest
import torch
from torch import library
from torch.func import vmap

from interpreted import found_by
from intrigue.ops import tf32x3
from intrigue.ops.tf32x3 import PAIRWISE_SCORES, pairwise_scores, uses_kernel

pytestmark = pytest.mark.xdist_group("tf32x3")  # one process: the interpreter runs once

INF, NAN = torch.inf, torch.nan
# Of |x| |y|: the omitted part of a product of split factors, and the rounding of its sums.
ROUNDING = 2**-20


def drawn(rows, candidates, depth, scale=1.0, seed=0):
    rng = torch.Generator().manual_seed(seed)
    query = scale * torch.randn(rows, depth, generator=rng)
    memory = scale * torch.randn(candidates, depth, generator=rng)
    return query, memory, memory.square().sum(-1)


def among_themselves(count, depth):
    """One and the same rows, not a copy of them."""
    _, rows, norms = drawn(1, count, depth)
    return rows, rows, norms


CASES = {
    "by hand": (torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, -4.0], [0.5, 0.0]]), torch.tensor([25.0, 0.25])),
    "square": drawn(20, 20, 40),
    "among themselves": among_themselves(20, 40),
    "one number": drawn(3, 5, 1),
    "a power of two": drawn(5, 9, 64),
    "not a multiple": drawn(7, 6, 29),
    "small": drawn(6, 7, 33, 1e-12),
    "large": drawn(6, 7, 33, 1e12),
    "seeds": tuple(torch.stack([each, 2 * each]) for each in drawn(6, 7, 20)),
    "seeds and members": tuple(
        torch.stack([torch.stack([each, 2 * each, -each]), torch.stack([3 * each] * 3)]) for each in drawn(6, 7, 20)
    ),
    "offsets instead of norms": (*drawn(6, 7, 20)[:2], torch.linspace(-3, 2, 7)),
    "columns lie apart": (drawn(20, 1, 12)[0].mT.contiguous().mT, *drawn(1, 8, 12)[1:]),
}


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    """The kernel's results for every case."""
    given = tmp_path_factory.mktemp("tf32x3") / "given.pt"
    query, memory, norms = drawn(3, 4, 10)
    far, broken = norms.clone(), memory.clone()
    far[2], broken[1, 3] = INF, NAN
    torch.save({**CASES, "infinite": (query, memory, far), "nan": (query, broken, norms)}, given)
    return torch.load(found_by("tf32x3_interpreted.py", tmp_path_factory, given))


def test_kernel_by_hand(interpreted):
    # 25 − 2 (3 − 8) and 0.25 − 2 · 0.5, exact in TF32
    assert interpreted["by hand"].tolist() == [[35.0, -0.75]]


@pytest.mark.parametrize("name", CASES)
def test_kernel_is_as_accurate_as_float32(interpreted, name):
    query, memory, norms = (each.double() for each in CASES[name])
    wanted = norms.unsqueeze(-2) - 2 * query @ memory.mT
    reach = 2 * query.norm(dim=-1, keepdim=True) * memory.norm(dim=-1).unsqueeze(-2) + norms.abs().unsqueeze(-2)
    assert ((interpreted[name] - wanted).abs() <= ROUNDING * reach).all()


def test_plain_tf32_would_not_do(interpreted):
    """Without the products of the remainders, plain TF32 has a thousand times the error."""
    query, memory, norms = CASES["square"]
    rounded = [(each.view(torch.int32) + 0x1000 & -0x2000).view(torch.float32).double() for each in (query, memory)]
    wanted = norms.double() - 2 * query.double() @ memory.double().mT
    lone = norms.double() - 2 * rounded[0] @ rounded[1].mT
    assert (lone - wanted).abs().max() > 100 * (interpreted["square"] - wanted).abs().max()


def test_infinite_norms_and_nan_stay(interpreted):
    infinite, broken = interpreted["infinite"], interpreted["nan"]
    assert (infinite[:, 2] == INF).all()
    assert torch.isfinite(infinite[:, [0, 1, 3]]).all()
    assert broken[:, 1].isnan().all()
    assert torch.isfinite(broken[:, [0, 2, 3]]).all()


def test_without_the_kernel_it_is_addmm_bit_for_bit():
    query, memory, norms = drawn(300, 280, 270)
    assert not uses_kernel(query, memory)  # a CPU
    assert torch.equal(pairwise_scores(query, memory, norms), torch.addmm(norms, query, memory.mT, alpha=-2))


def test_a_memory_too_large_to_be_split_is_not(monkeypatch):
    monkeypatch.setattr(tf32x3, "INTERPRETED", True)
    assert uses_kernel(torch.empty(256, 512), torch.empty(8192, 512))
    assert not uses_kernel(torch.empty(256, 512), torch.empty(16384, 512))
    assert not uses_kernel(torch.empty(256, 512).double(), torch.empty(256, 512).double())
    assert not uses_kernel(torch.empty(255, 512), torch.empty(256, 512))


@pytest.mark.parametrize("members", [False, True])
@pytest.mark.parametrize("in_dims", [(0, 0, 0), (0, None, None), (None, 0, 0), (1, 0, 0)])
def test_maps_are_what_each_gives(in_dims, members):
    query, memory, norms = (torch.stack([each, 3 * each]) for each in drawn(4, 5, 6))
    if members:
        query, memory, norms = (torch.stack([each, each / 2, -each], 1) for each in (query, memory, norms))
    given = [
        each[0] if dim is None else each.movedim(0, dim)
        for each, dim in zip((query, memory, norms), in_dims, strict=True)
    ]
    each = [
        pairwise_scores(
            *(part if dim is None else part.select(dim, i) for part, dim in zip(given, in_dims, strict=True))
        )
        for i in range(2)
    ]
    torch.testing.assert_close(vmap(pairwise_scores, in_dims)(*given), torch.stack(each))


def test_opcheck():
    library.opcheck(PAIRWISE_SCORES, drawn(4, 5, 6), test_utils=("test_schema", "test_faketensor"))
