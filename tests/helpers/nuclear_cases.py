"""Matrices at the edges of what is defined, with their values worked out by hand; for every path and device."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from intrigue.nuclear import Center, Gathered

NAN, INF = math.nan, math.inf


def diagonal(n: int, m: int, *values: float, dtype: torch.dtype = torch.float32) -> Tensor:
    z = torch.zeros(n, m, dtype=torch.float64)
    for place, value in enumerate(values):
        z[place, place] = value
    return z.to(dtype)


def marked(bad: float, n: int = 3, m: int = 4) -> Tensor:
    z = torch.ones(n, m)
    z[n - 1, m - 1] = bad
    return z


# name: (matrix, its norm, its ratio)
CASES: dict[str, tuple[Tensor, float, float]] = {
    "zero": (torch.zeros(3, 4), 0.0, 0.0),
    "rank one": (torch.outer(torch.tensor([1.0, 2.0, 2.0]), torch.tensor([2.0, 4.0, 4.0, 0.0])), 18.0, 1.0),
    "n = 1": (torch.tensor([[3.0, 0.0, -4.0]]), 5.0, 1.0),
    "m = 1": (torch.tensor([[3.0], [0.0], [-4.0]]), 5.0, 1.0),
    "one entry": (torch.tensor([[-2.0]]), 2.0, 1.0),
    "m < n": (diagonal(7, 2, 3.0, 4.0), 7.0, 1.4),
    "3, 4 in 2 × 9": (diagonal(2, 9, 3.0, 4.0), 7.0, 1.4),
    "ten rows": (diagonal(10, 12, *[2.0] * 10), 20.0, math.sqrt(10)),
    "NaN": (marked(NAN), NAN, NAN),
    "Inf": (marked(INF), NAN, NAN),
    "-Inf in ten rows": (marked(-INF, 10, 12), NAN, NAN),
    "NaN, m < n": (marked(NAN, 5, 2), NAN, NAN),
    "1e30": (diagonal(2, 3, 3e30, 4e30), 7e30, 1.4),
    "1e-30": (diagonal(2, 3, 3e-30, 4e-30), 7e-30, 1.4),
    "subnormal": (diagonal(2, 2, 3 * 2.0**-149, 4 * 2.0**-149), 7 * 2.0**-149, 1.4),
    "1e300": (diagonal(2, 3, 3e300, 4e300, dtype=torch.float64), 7e300, 1.4),
    "float64 subnormal": (diagonal(2, 3, 3e-310, 4e-310, dtype=torch.float64), 7e-310, 1.4),
    "1e-300 in ten rows": (diagonal(10, 12, *[2e-300] * 10, dtype=torch.float64), 20e-300, math.sqrt(10)),
    "half": (diagonal(2, 3, 3.0, 4.0, dtype=torch.float16), 7.0, 1.4),
    "bfloat16": (diagonal(2, 3, 3.0, 4.0, dtype=torch.bfloat16), 7.0, 1.4),
    "orthogonal and equal": (torch.cat([torch.eye(3), torch.eye(3)], dim=1), 3 * math.sqrt(2), math.sqrt(3)),
}
# name: (matrix, norm of the deviations from the mean row, norm of the offsets from the first row)
CENTERED: dict[str, tuple[Tensor, float, float]] = {
    # Deviations ±(1, 0); offset (2, 0).
    "two rows": (torch.tensor([[1.0, 2.0], [3.0, 2.0]]), math.sqrt(2), 2.0),
    "equal rows": (torch.full((3, 4), 0.1), 0.0, 0.0),
    "one row": (torch.tensor([[1.0, 5.0, 7.0]]), 0.0, 0.0),
    # One column: deviations (-1, 0, 1); offsets (0, 1, 2).
    "m < n": (torch.tensor([[5.0], [6.0], [7.0]]), math.sqrt(2), math.sqrt(5)),
    "far from zero": (torch.tensor([[1e6, 2.0], [1e6, 4.0]]), math.sqrt(2), 2.0),
    "float64 far from zero": (
        torch.tensor([[1.0, 1e-200], [1.0, 3e-200]], dtype=torch.float64), math.sqrt(2) * 1e-200, 2e-200,
    ),
    "Inf": (marked(INF), NAN, NAN),
}  # fmt: skip


def close(found: float, expected: float) -> bool:
    """Equal to float32 rounding, NaN to NaN, zero to zero."""
    if math.isnan(expected):
        return math.isnan(found)
    # The smallest float32 numbers are spaced more coarsely than their digits.
    return math.isclose(found, expected, rel_tol=1e-6, abs_tol=2.0**-149 if 1e-45 < expected < 1e-37 else 0.0)


# name: (matrices, n, m, dtype, center, strided); one for each kernel and each way of reading its input
RANDOM: dict[str, tuple[int, int, int, torch.dtype, Center, bool]] = {
    "5 rows": (3, 5, 130, torch.float32, "none", False),
    "5 rows, mean": (2, 5, 40, torch.float32, "mean", True),
    "6 rows, first, float64": (2, 6, 9, torch.float64, "first", False),
    "7 rows, bfloat16": (2, 7, 20, torch.bfloat16, "none", True),
    "3 columns, mean, float64": (2, 40, 3, torch.float64, "mean", False),
    "12 rows": (2, 12, 50, torch.float32, "none", True),
    "9 rows, mean, float64": (1, 9, 20, torch.float64, "mean", False),
    "10 columns, mean": (1, 18, 10, torch.float32, "mean", False),
    "14 rows, half": (1, 14, 17, torch.float16, "none", False),
    "18 rows, first": (1, 18, 21, torch.float32, "first", False),
}
# name: (matrices, k, m, dtype, center)
GATHERED: dict[str, tuple[int, int, int, torch.dtype, Center]] = {
    "3 neighbours": (3, 3, 10, torch.float32, "first"),
    "9 neighbours": (2, 9, 20, torch.float32, "mean"),
    "5 neighbours of 2 dimensions": (3, 5, 2, torch.float32, "none"),
}


def random_matrices(name: str) -> tuple[Tensor, Center]:
    """Nearly equal rows, in memory as they come or as a slice of a transposed, larger tensor."""
    count, n, m, dtype, center, strided = RANDOM[name]
    rng = torch.Generator().manual_seed(len(name))
    shape = (count, 2 * m, n + 1) if strided else (count, n, m)
    z = torch.randn(shape, generator=rng, dtype=torch.float64)
    z = z.mT[:, 1:, ::2] if strided else z
    return (1 + 0.1 * z).to(dtype), center


def gathered_rows(name: str) -> tuple[Gathered, Center]:
    count, k, m, dtype, center = GATHERED[name]
    rng = torch.Generator().manual_seed(k)
    query, table = (torch.randn(size, m, generator=rng).to(dtype) for size in (count, 20))
    return Gathered(query, table, torch.randint(20, (count, k), generator=rng)), center
