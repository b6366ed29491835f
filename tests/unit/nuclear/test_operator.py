"""The custom operators: schema and fake implementation, torch.compile in one graph, dispatch and its messages."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import library

from intrigue.nuclear import (
    Gathered,
    MatrixError,
    MatrixTypeError,
    choose_method,
    dispatch,
    native,
    nuclear_norm,
    nuclear_score,
)
from intrigue.nuclear.native import native_library as compiled_norms
from intrigue.nuclear.operator import NUCLEAR, NUCLEAR_GATHERED
from intrigue.ops import triton_support


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def rows(k=4, m=12):
    index = torch.randint(9, (6, k), generator=rng(2))
    return Gathered(torch.randn(6, m, generator=rng()), torch.randn(9, m, generator=rng(1)), index)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_operators_keep_their_promises_to_torch(dtype):
    checks = ("test_schema", "test_faketensor")
    z = torch.randn(2, 3, 5, 8, generator=rng()).to(dtype)
    library.opcheck(NUCLEAR, (z, "score", "none", "auto"), test_utils=checks)
    given = rows()
    parts = (given.query.to(dtype), given.table.to(dtype), given.index)
    library.opcheck(NUCLEAR_GATHERED, (*parts, "norm", "first", "auto"), test_utils=checks)


@pytest.mark.parametrize("given", [torch.randn(7, 5, 8, generator=rng()), rows()])
def test_compiles_as_one_graph(given):
    def bonus(z):
        return nuclear_score(z) * 2 + nuclear_norm(z, "first")

    compiled = torch.compile(bonus, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(given), bonus(given), rtol=0, atol=0)


def test_nothing_is_read_back_while_compiling():
    z = torch.full((2, 3, 4), torch.nan)
    assert torch.compile(nuclear_score, fullgraph=True, backend="aot_eager")(z).isnan().all()


def test_gathered_rows_equal_the_matrices():
    given = rows()
    for center in ("none", "mean", "first"):
        expected = nuclear_norm(given.matrices(), center, method="svd")
        for method in ("auto", "native", "gram", "svd"):
            torch.testing.assert_close(nuclear_norm(given, center, method=method), expected, rtol=1e-6, atol=0)
    # The order matters: offsets are measured from the query, not from a neighbour.
    swapped = Gathered(given.table[given.index[:, 0]], torch.cat([given.table, given.query]), given.index)
    assert not torch.allclose(nuclear_norm(swapped, "first"), nuclear_norm(given, "first"))


def test_gathered_rows_of_any_stride():
    given = rows()
    turned = Gathered(given.query.mT.contiguous().mT, given.table, given.index.mT.contiguous().mT)
    torch.testing.assert_close(nuclear_score(turned), nuclear_score(given), rtol=1e-6, atol=0)


def test_wrong_gathered_rows():
    good = rows()
    with pytest.raises(MatrixTypeError, match="dtypes"):
        nuclear_score(Gathered(good.query.double(), good.table, good.index))
    with pytest.raises(MatrixTypeError, match="int64"):
        nuclear_score(Gathered(good.query, good.table, good.index.int()))
    with pytest.raises(MatrixError, match="shapes"):
        nuclear_score(Gathered(good.query[:3], good.table, good.index))
    with pytest.raises(MatrixError, match="shapes"):
        nuclear_score(Gathered(good.query[:, :3], good.table, good.index))
    with pytest.raises(MatrixError, match="center"):
        nuclear_norm(good, "median")


def test_impossible_methods_say_why():
    z = torch.ones(2, 3, 4)
    with pytest.raises(MatrixError, match=r'"triton" runs on cuda, the matrices are on cpu'):
        nuclear_score(z, method="triton")
    with pytest.raises(MatrixError, match="at most 32, these are 40 × 50"):
        nuclear_score(torch.ones(40, 50), method="native")


def test_without_a_compiler_the_gram_method_serves(monkeypatch):
    z = torch.randn(3, 5, 20, generator=rng())
    expected = nuclear_score(z, method="svd")
    nothing = native.NativeLibrary(None, "no C compiler found")
    for module in (native, dispatch):
        monkeypatch.setattr(module, "native_library", lambda: nothing)
    assert choose_method(z.device, z.dtype, 5, 20) == "gram"
    torch.testing.assert_close(nuclear_score(z), expected, rtol=1e-6, atol=0)
    with pytest.raises(MatrixError, match='"native" is not available here: no C compiler found'):
        nuclear_score(z, method="native")


def test_a_broken_compiler_is_no_error(monkeypatch, tmp_path):
    monkeypatch.setenv("CC", "false")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = compiled_norms.__wrapped__()
    assert found.function is None
    assert "could not build" in found.reason


def test_the_library_is_built_once_and_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compiled_norms.__wrapped__().function is not None
    [kept] = (tmp_path / "intrigue").iterdir()
    written = kept.stat().st_mtime_ns
    assert compiled_norms.__wrapped__().function is not None
    assert [path.stat().st_mtime_ns for path in (tmp_path / "intrigue").iterdir()] == [written]


def test_missing_triton_is_said_once(monkeypatch):
    monkeypatch.setattr(triton_support.importlib.util, "find_spec", lambda name: None)
    forget = (dispatch._triton_available_or_warn.cache_clear, triton_support.why_no_triton.cache_clear)
    for each in forget:
        each()
    try:
        cuda = torch.device("cuda")
        with pytest.warns(RuntimeWarning, match="Triton is not installed"):
            assert choose_method(cuda, torch.float32, 5, 512) == "gram"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert choose_method(cuda, torch.float32, 5, 512) == "gram"
    finally:
        for each in forget:
            each()


def test_triton_without_a_compiler_is_not_taken(monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    triton_support.why_no_triton.cache_clear()
    try:
        assert not triton_support.triton_available()
        assert "gcc or clang" in triton_support.why_no_triton()
    finally:
        triton_support.why_no_triton.cache_clear()


def test_threads_change_nothing():
    z = torch.randn(3001, 5, 128, generator=rng())  # 1.9 million entries, more than one thread's share
    alone = nuclear_norm(z)
    torch.set_num_threads(2)
    assert torch.equal(nuclear_norm(z), alone)
    torch.set_num_threads(1)
