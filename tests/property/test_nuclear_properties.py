"""Properties of the nuclear norm that hold for every matrix: bounds, invariances, the axioms of a norm."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from intrigue.nuclear import nuclear_floor, nuclear_norm, nuclear_ratio, nuclear_score

CLOSE = 1e-6
shapes = st.tuples(st.integers(1, 12), st.integers(1, 40))
seeds = st.integers(0, 2**31 - 1)
# s/c: from rows that differ in the sixth digit to rows that share nothing.
spreads = st.sampled_from([1e-6, 1e-3, 0.1, 1.0, 1e3])
pytestmark = pytest.mark.parametrize("method", ["native", "gram", "svd"])


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def matrix(shape: tuple[int, int], seed: int, spread: float) -> Tensor:
    """A float64 matrix of rows around a shared mean, of random rank."""
    generator = rng(seed)
    rank = int(torch.randint(1, min(shape) + 1, (), generator=generator))
    left = torch.randn(shape[0], rank, generator=generator, dtype=torch.float64)
    right = torch.randn(rank, shape[1], generator=generator, dtype=torch.float64)
    return torch.randn(1, shape[1], generator=generator, dtype=torch.float64) + spread * (left @ right)


def rotation(size: int, seed: int) -> Tensor:
    return torch.linalg.qr(torch.randn(size, size, generator=rng(seed), dtype=torch.float64)).Q


@given(shapes, seeds, spreads)
@settings(max_examples=50, deadline=None)
def test_bounds(method: str, shape: tuple[int, int], seed: int, spread: float) -> None:
    score = nuclear_score(matrix(shape, seed, spread), method=method).item()
    low, high = 1 / math.sqrt(max(shape)), math.sqrt(min(shape) / max(shape))
    assert low * (1 - 1e-12) <= score <= high * (1 + 1e-12)
    assert 0 <= nuclear_floor(matrix(shape, seed, spread), method=method).item() <= 1 + 1e-12


@given(shapes, seeds, spreads, st.floats(-200, 200))
@settings(max_examples=50, deadline=None)
def test_score_is_blind_to_scale(method: str, shape: tuple[int, int], seed: int, spread: float, decades: float) -> None:
    z = matrix(shape, seed, spread)
    expected = nuclear_score(z, method=method).item()
    assert nuclear_score(-z * 10**decades, method=method).item() == pytest.approx(expected, rel=CLOSE, abs=0)


@given(shapes, seeds, spreads)
@settings(max_examples=50, deadline=None)
def test_score_is_blind_to_rotation_and_transposition(
    method: str, shape: tuple[int, int], seed: int, spread: float
) -> None:
    z = matrix(shape, seed, spread)
    expected = nuclear_score(z, method=method).item()
    for turned in (rotation(shape[0], seed) @ z, z @ rotation(shape[1], seed), z.mT):
        assert nuclear_score(turned, method=method).item() == pytest.approx(expected, rel=CLOSE, abs=0)


@given(shapes, seeds, spreads)
@settings(max_examples=50, deadline=None)
def test_score_is_blind_to_order(method: str, shape: tuple[int, int], seed: int, spread: float) -> None:
    z = matrix(shape, seed, spread)
    expected = nuclear_score(z, method=method).item()
    rows, columns = (torch.randperm(size, generator=rng(seed)) for size in shape)
    assert nuclear_score(z[rows], method=method).item() == pytest.approx(expected, rel=CLOSE, abs=0)
    assert nuclear_score(z[:, columns], method=method).item() == pytest.approx(expected, rel=CLOSE, abs=0)


@given(shapes, seeds, spreads, st.integers(1, 6))
@settings(max_examples=50, deadline=None)
def test_rows_of_zeros_change_the_ratio_by_nothing(
    method: str, shape: tuple[int, int], seed: int, spread: float, padding: int
) -> None:
    z = matrix(shape, seed, spread)
    padded = torch.cat([z, torch.zeros(padding, shape[1], dtype=z.dtype)])
    expected = nuclear_ratio(z, method=method).item()
    assert nuclear_ratio(padded, method=method).item() == pytest.approx(expected, rel=CLOSE, abs=0)
    larger = math.sqrt(max(padded.shape) / max(shape))
    score = nuclear_score(z, method=method).item()
    assert nuclear_score(padded, method=method).item() * larger == pytest.approx(score, rel=CLOSE)


@given(shapes, seeds)
@settings(max_examples=50, deadline=None)
def test_rows_on_one_line_score_lowest(method: str, shape: tuple[int, int], seed: int) -> None:
    generator = rng(seed)
    line = torch.randn(shape[0], 1, generator=generator) @ torch.randn(1, shape[1], generator=generator)
    assert nuclear_score(line, method=method).item() == pytest.approx(1 / math.sqrt(max(shape)), rel=CLOSE)


@given(shapes, seeds)
@settings(max_examples=50, deadline=None)
def test_orthonormal_rows_score_highest(method: str, shape: tuple[int, int], seed: int) -> None:
    n, m = min(shape), max(shape)
    rows = rotation(m, seed)[:n]
    assert nuclear_score(rows, method=method).item() == pytest.approx(math.sqrt(n / m), rel=CLOSE)


@given(shapes, seeds, st.booleans())
@settings(max_examples=50, deadline=None)
def test_triangle_inequality(method: str, shape: tuple[int, int], seed: int, center: bool) -> None:
    a, b = matrix(shape, seed, 1.0), matrix(shape, seed + 1, 0.1)
    norm_a, norm_b, norm_sum = (nuclear_norm(z, center, method=method).item() for z in (a, b, a + b))
    assert norm_sum <= (norm_a + norm_b) * (1 + CLOSE) + 1e-12


@given(shapes, seeds, spreads, st.floats(-100, 100), st.booleans())
@settings(max_examples=50, deadline=None)
def test_homogeneity(
    method: str, shape: tuple[int, int], seed: int, spread: float, decades: float, center: bool
) -> None:
    z, factor = matrix(shape, seed, spread), 10**decades
    expected = nuclear_norm(z, center, method=method).item() * factor
    # The product z · factor is rounded, which after centering counts relative to the mean row, not to the deviations.
    rounding = 1e-14 * factor * z.norm().item()
    assert nuclear_norm(-factor * z, center, method=method).item() == pytest.approx(expected, rel=CLOSE, abs=rounding)


@given(shapes, seeds, spreads)
@settings(max_examples=50, deadline=None)
def test_between_the_frobenius_norm_and_root_rank_of_it(
    method: str, shape: tuple[int, int], seed: int, spread: float
) -> None:
    z = matrix(shape, seed, spread)
    norm, frobenius, rank = nuclear_norm(z, method=method).item(), z.norm().item(), torch.linalg.matrix_rank(z).item()
    assert frobenius * (1 - 1e-12) <= norm <= math.sqrt(rank) * frobenius * (1 + CLOSE)


@given(shapes, seeds, st.floats(-1e3, 1e3))
@settings(max_examples=50, deadline=None)
def test_centered_norm_ignores_a_constant_row(method: str, shape: tuple[int, int], seed: int, size: float) -> None:
    z = matrix(shape, seed, 1.0)
    constant = size * torch.randn(1, shape[1], generator=rng(seed), dtype=torch.float64)
    expected = nuclear_norm(z, center=True, method=method).item()
    assert nuclear_norm(z + constant, center=True, method=method).item() == pytest.approx(expected, rel=CLOSE, abs=1e-9)


@given(st.integers(2, 12), st.sampled_from([256, 512]), seeds, st.floats(-3, 2))
@settings(max_examples=20, deadline=None)
def test_closed_form_of_rows_around_a_mean(method: str, n: int, m: int, seed: int, decades: float) -> None:
    generator, spread = rng(seed), 10**decades
    mean = torch.randn(64, 1, m, generator=generator)
    mean *= math.sqrt(m) / mean.norm(dim=-1, keepdim=True)  # c = 1
    ratio = nuclear_ratio(mean + spread * torch.randn(64, n, m, generator=generator), method=method).mean().item()
    expected = (math.sqrt(n + spread**2) + (n - 1) * spread) / math.sqrt(n * (1 + spread**2))
    assert ratio == pytest.approx(expected, rel=0.01)  # the next term, n/(8 m), is 0.006 at worst here
