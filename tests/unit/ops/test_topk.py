"""Columns of the k smallest: the kernel against NumPy's stable sort; opcheck, vmap and torch.compile."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import library

from interpreted import found_by
from intrigue.ops import topk as module
from intrigue.ops.topk import BOTTOM_K, MAX_K, MAX_WIDTH, bottom_k, uses_kernel

pytestmark = pytest.mark.xdist_group("topk")  # one process: the interpreter runs once

INF, NAN = torch.inf, torch.nan
TINY = 1e-45  # the smallest float32 there is, a subnormal one
# Columns by hand; equal values in the order of their columns, NaN after infinity.
BY_HAND = {
    "ascending": ([3.0, -1.0, 2.0, -5.0], [3, 1, 2, 0]),
    "equal": ([2.0, 1.0, 2.0, 1.0, 1.0], [1, 3, 4, 0, 2]),
    "infinite": ([INF, 7.0, INF, -INF, INF, -INF], [3, 5, 1, 0, 2, 4]),
    "nan": ([NAN, INF, -NAN, 0.0, -INF], [4, 3, 1, 0, 2]),
    "zeros": ([0.0, -0.0, TINY, -TINY, -0.0], [3, 0, 1, 4, 2]),
    "one": ([NAN], [0]),
    "largest": ([3.4028235e38, -3.4028235e38, INF, -INF], [3, 1, 0, 2]),
}
AWKWARD = [-INF, -2.0, -1.0, -TINY, -0.0, 0.0, TINY, 1.0, 1.0000001, INF, NAN, -NAN]
SIZES = [(1, 1), (3, 1), (3, 3), (32, 32), (33, 32), (257, 50), (1000, 11), (1024, 1), (1024, 16), (1025, 32)]
KINDS = ["random", "ties", "awkward", "masked"]


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def table(kind, rows, width, seed=0):
    """Rows as distances are, rows of few values, rows of values that compare awkwardly, rows with most masked."""
    if kind == "ties":
        return torch.randint(-2, 2, (rows, width), generator=rng(seed)).float()
    if kind == "awkward":
        return torch.tensor(AWKWARD)[torch.randint(len(AWKWARD), (rows, width), generator=rng(seed))]
    values = torch.randn(rows, width, generator=rng(seed)) * 10 ** torch.randn(rows, 1, generator=rng(seed + 1))
    return values.masked_fill(torch.rand(rows, width, generator=rng(seed + 2)) < 0.99 * (kind == "masked"), INF)


def by_sorting(values, k):
    return torch.from_numpy(np.argsort(values.numpy(), axis=1, kind="stable")[:, :k].copy())


def tables():
    found = {name: (torch.tensor([row]), len(row)) for name, (row, _) in BY_HAND.items()}
    for kind in KINDS:
        for width, k in SIZES:
            found[f"{kind} {width} {k}"] = (table(kind, 5, width, seed=width), k)
    found["columns lie apart"] = (table("ties", 40, 7).mT, 9)
    found["rows lie apart"] = (table("ties", 8, 50)[::2, 3:41], 9)
    found["no rows"] = (torch.empty(0, 5), 2)
    return found


TABLES = tables()


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    """The kernel's result for every table."""
    given = tmp_path_factory.mktemp("topk") / "given.pt"
    torch.save(TABLES, given)
    return torch.load(found_by("topk_interpreted.py", tmp_path_factory, given))


@pytest.mark.parametrize("name", BY_HAND)
def test_kernel_by_hand(interpreted, name):
    assert interpreted[name].tolist() == [BY_HAND[name][1]]


@pytest.mark.parametrize("name", TABLES)
def test_kernel_sorts_stably(interpreted, name):
    values, k = TABLES[name]
    assert interpreted[name].dtype == torch.int64
    assert torch.equal(interpreted[name], by_sorting(values, k))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(KINDS), st.integers(0, 6), st.integers(1, 300), st.data())
def test_without_the_kernel_it_is_topk_bit_for_bit(kind, rows, width, data):
    k = data.draw(st.integers(0, width))
    values = table(kind, rows, width, seed=data.draw(st.integers(0, 2**16)))
    assert torch.equal(bottom_k(values, k), values.topk(k, largest=False).indices)


def test_too_many_are_refused():
    with pytest.raises(RuntimeError, match="out of range"):
        bottom_k(torch.zeros(2, 3), 4)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_mapped_axis_is_more_rows(axis):
    values = table("ties", 24, 40).unflatten(0, (4, 6))
    expected = torch.stack([bottom_k(each, 5) for each in values])
    mapped = torch.func.vmap(lambda each: bottom_k(each, 5), in_dims=axis)(values.movedim(0, axis))
    assert torch.equal(mapped, expected)
    twice = values.unflatten(1, (2, 3))
    again = torch.func.vmap(torch.func.vmap(lambda each: bottom_k(each, 5)))(twice)
    assert torch.equal(again.flatten(1, 2), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_opcheck(dtype):
    values = table("ties", 6, 40).to(dtype).requires_grad_()
    library.opcheck(BOTTOM_K, (values, 5))
    assert not bottom_k(values, 5).requires_grad


def test_compiles_as_one_graph():
    values = table("random", 6, 40)
    compiled = torch.compile(lambda each: bottom_k(each * 2, 5) + 1, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(values), bottom_k(values, 5) + 1)


def test_supported_sizes(monkeypatch):
    monkeypatch.setattr(module, "triton_available", lambda: True)
    gpu, single = torch.device("cuda"), torch.float32
    assert uses_kernel(gpu, single, 1024, 11)
    assert uses_kernel(gpu, single, MAX_WIDTH, MAX_K)
    assert uses_kernel(gpu, single, 1, 1)
    assert not uses_kernel(gpu, single, MAX_WIDTH + 1, 11)
    assert not uses_kernel(gpu, single, 1024, MAX_K + 1)
    assert not uses_kernel(gpu, single, 1024, 0)
    assert not uses_kernel(gpu, single, 3, 4)  # torch.topk raises the error
    assert not uses_kernel(gpu, torch.float64, 1024, 11)
    assert not uses_kernel(torch.device("cpu"), single, 1024, 11)
    monkeypatch.setattr(module, "triton_available", lambda: False)
    assert not uses_kernel(gpu, single, 1024, 11)
