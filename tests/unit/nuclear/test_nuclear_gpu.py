"""The Triton path on a CUDA device: values, range, strides, gathered rows, graphs, torch.compile, no waiting."""

from __future__ import annotations

import pytest
import torch

from intrigue.nuclear import Gathered, choose_method, nuclear_floor, nuclear_norm, nuclear_ratio, nuclear_score
from nuclear_cases import CASES, CENTERED, close
from nuclear_fuzz import PROMISED, worst_errors

pytestmark = pytest.mark.gpu
FUNCTIONS = [nuclear_score, nuclear_norm, nuclear_ratio, nuclear_floor]


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("method", ["triton", "gram", "svd"])
def test_agrees_with_the_cpu(function, method):
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        for shape in ((64, 5, 512), (16, 12, 55), (8, 24, 5), (9, 32, 33), (3, 1, 4), (40, 8, 31), (0, 5, 8)):
            z = torch.randn(*shape, generator=rng()).to(dtype)
            z[:1] = 0
            scores = function(z.cuda(), method=method)
            assert scores.is_cuda
            torch.testing.assert_close(scores.cpu(), function(z, method="svd"), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_edges(name):
    z, norm, ratio = CASES[name]
    for other in (z, z.mT):
        given = other.cuda()
        assert close(nuclear_norm(given, on_nonfinite="propagate").item(), norm)
        assert close(nuclear_ratio(given, on_nonfinite="propagate").item(), ratio)


@pytest.mark.parametrize("name", CENTERED)
def test_centered_edges(name):
    z, mean, first = CENTERED[name]
    assert close(nuclear_norm(z.cuda(), "mean", on_nonfinite="propagate").item(), mean)
    assert close(nuclear_norm(z.cuda(), "first", on_nonfinite="propagate").item(), first)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])  # a hundred thousand matrices together
def test_a_hundred_thousand_matrices_agree_with_the_svd(seed):
    worst = worst_errors(25_000, "auto", seed=seed, device="cuda")
    print(f"worst relative errors: {worst}")
    assert max(worst.values()) <= PROMISED, worst


def test_more_matrices_than_torchs_solver_takes():
    z = torch.randn(200_000, 5, 8, generator=rng())
    for method in ("triton", "gram"):
        torch.testing.assert_close(nuclear_score(z.cuda(), method=method).cpu(), nuclear_score(z), rtol=1e-6, atol=0)


def test_strides_without_a_copy():
    base = torch.randn(7, 6, 40, 12, generator=rng()).cuda()
    for z in (base.transpose(0, 1), base.mT, base[::2, 1:, ::3], base.movedim(2, 0), base.permute(3, 2, 1, 0)):
        z.contiguous()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        found = nuclear_norm(z, "mean", method="triton") if min(z.shape[-2:]) <= 32 else None
        assert torch.cuda.max_memory_allocated() - before < 2**20 + 8 * z.numel()
        torch.testing.assert_close(found, nuclear_norm(z.contiguous(), "mean", method="svd"), rtol=1e-6, atol=0)


@pytest.mark.parametrize(("k", "m"), [(4, 512), (11, 40), (0, 8), (11, 5), (31, 32)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_gathered_rows(k, m, dtype):
    query, table = torch.randn(50, m, generator=rng()).to(dtype), torch.randn(90, m, generator=rng(1)).to(dtype)
    index = torch.randint(90, (50, k), generator=rng(2))
    rows = Gathered(query.cuda(), table.cuda(), index.cuda())
    for center in ("none", "mean", "first"):
        expected = nuclear_norm(Gathered(query, table, index).matrices(), center, method="svd")
        torch.testing.assert_close(nuclear_norm(rows, center).cpu(), expected, rtol=1e-6, atol=1e-9)


def test_gathering_does_not_make_the_matrices():
    query = torch.randn(4096, 512, generator=rng()).cuda()
    rows = Gathered(query, query, torch.randint(4096, (4096, 11), generator=rng()).cuda())
    nuclear_score(rows, on_nonfinite="propagate")
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    nuclear_score(rows, on_nonfinite="propagate")
    assert torch.cuda.max_memory_allocated() - before < rows.matrices().nbytes / 8


@pytest.mark.parametrize("shape", [(256, 5, 128), (64, 12, 64), (32, 32, 40)])
def test_graph_replay_with_new_data_gives_the_eager_result(shape):
    z = torch.randn(shape, generator=rng()).cuda()
    nuclear_score(z)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        score = nuclear_score(z)
        norm = nuclear_norm(z, center=True)
    for seed in (1, 2):
        z.copy_(torch.randn(shape, generator=rng(seed)))
        graph.replay()
        assert torch.equal(score, nuclear_score(z))
        assert torch.equal(norm, nuclear_norm(z, center=True))


def test_compiles_as_one_graph():
    z = torch.randn(64, 5, 128, generator=rng()).cuda()
    compiled = torch.compile(lambda z: nuclear_score(z * 2) + 1, fullgraph=True)
    torch.testing.assert_close(compiled(z), nuclear_score(z) + 1, rtol=1e-6, atol=0)


@pytest.mark.parametrize("shape", [(256, 5, 128), (64, 12, 64), (16, 32, 40)])
def test_never_waits_for_the_device(shape):
    z = torch.randn(shape, generator=rng()).cuda()
    rows = Gathered(z[:, 0].contiguous(), z[:, 1].contiguous(), torch.zeros(shape[0], shape[1] - 1).long().cuda())
    for given in (z, rows):
        nuclear_score(given, on_nonfinite="propagate")
        torch.cuda.set_sync_debug_mode("error")
        try:
            nuclear_score(given, on_nonfinite="propagate")
            nuclear_floor(given, on_nonfinite="propagate")
            nuclear_norm(given, "first", on_nonfinite="propagate")
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_auto_is_triton():
    cuda = torch.device("cuda")
    assert choose_method(cuda, torch.float32, 5, 512) == "triton"
    assert choose_method(cuda, torch.float32, 4096, 32) == "triton"
    assert choose_method(cuda, torch.float32, 33, 512) == "gram"
