"""Relative error against the float64 SVD over many random float32 matrices of mixed shape, scale, rank and spectrum."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from nuclear_fuzz import PROMISED, relative_error, spread_of_one_millionth, worst_errors


@pytest.fixture
def one_thread() -> Iterator[None]:
    """One torch thread: on matrices this small, threads that share busy cores only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("matrices", "method"),
    [(24_000, "auto"), (9_000, "gram"), (9_000, "svd"), pytest.param(100_000, "auto", marks=pytest.mark.slow)],
)
def test_many_matrices_agree_with_the_svd(matrices: int, method: str) -> None:
    worst = worst_errors(matrices, method, seed=0)
    print(f"worst relative errors of {matrices} matrices by {method}: {worst}")  # pytest -rP shows it
    assert max(worst.values()) <= PROMISED, worst


def test_a_float32_gram_matrix_would_fail_this_proof() -> None:
    z = spread_of_one_millionth(5, 128, torch.Generator().manual_seed(0))
    eigenvalues = torch.linalg.eigvalsh(z @ z.mT).clamp_min(0)
    ratio = eigenvalues.sqrt().sum(-1) / eigenvalues.sum(-1).sqrt()
    exact = torch.linalg.svdvals(z.double()).sum(-1) / torch.linalg.vector_norm(z.double(), dim=(-2, -1))
    assert relative_error(ratio, exact) > 100 * PROMISED
