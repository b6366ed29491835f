"""The kernel of `intrigue::bottom_k` on a CUDA device: columns, maps, graphs, torch.compile, no waiting."""

from __future__ import annotations

import pytest
import torch
from test_topk import KINDS, TABLES, table

from intrigue.ops.topk import MAX_K, MAX_WIDTH, bottom_k

pytestmark = pytest.mark.gpu


def sorted_columns(values, k):
    """By torch's stable sort; where zeros are equal and NaN is last there, too."""
    # On the CPU: a GPU's sort puts NaN with a sign before everything (torch 2.11).
    return values.cpu().sort(dim=-1, stable=True).indices[..., :k].cuda()


@pytest.mark.parametrize("name", TABLES)
def test_awkward_tables(name):
    values, k = TABLES[name]
    if k <= MAX_K:
        # Strides are kept.
        held = torch.empty_strided(values.shape, values.stride(), device="cuda").copy_(values)
        assert torch.equal(bottom_k(held, k), sorted_columns(held, k))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("rows", "width", "k"),
    [(1024, 1024, 11), (1024, 1024, 16), (8192, 1024, 16), (300, MAX_WIDTH, MAX_K), (300, 2100, 20)],
)
def test_batches(kind, rows, width, k):
    values = table(kind, rows, width).cuda()
    assert torch.equal(bottom_k(values, k), sorted_columns(values, k))


@pytest.mark.parametrize(("width", "k"), [(MAX_WIDTH + 1, 5), (100, MAX_K + 1)])
def test_larger_ones_go_to_topk(width, k):
    values = torch.stack([torch.randperm(width) for _ in range(8)]).float().cuda()  # no two are equal
    assert torch.equal(bottom_k(values, k), sorted_columns(values, k))


def test_mapped():
    values = table("ties", 8 * 1024, 1024).cuda().unflatten(0, (8, 1024))
    assert torch.equal(torch.func.vmap(lambda each: bottom_k(each, 16))(values), sorted_columns(values, 16))


def test_captured_in_a_graph():
    values = table("random", 1024, 1024).cuda()
    bottom_k(values, 16)  # compiled before the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        columns = bottom_k(values, 16)
    for kind in KINDS:
        values.copy_(table(kind, 1024, 1024, seed=5))
        graph.replay()
        assert torch.equal(columns, sorted_columns(values, 16))


def test_nothing_waits():
    values = table("random", 1024, 1024).cuda()
    expected = bottom_k(values, 16)
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = bottom_k(values, 16)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(found, expected)


def test_compiled():
    values = table("ties", 1024, 1024).cuda()
    compiled = torch.compile(lambda each: bottom_k(each * 2, 11) + 1, fullgraph=True)
    assert torch.equal(compiled(values), sorted_columns(values, 11) + 1)
