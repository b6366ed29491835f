"""Random float32 matrices of mixed shape, scale, rank and spectrum, and their errors against the float64 SVD."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from intrigue.nuclear import nuclear_norm, nuclear_score

PROMISED = 1e-6
BATCH = 250
SHAPES = [(1, 1), (1, 40), (40, 1), (2, 2), (2, 3), (5, 24), (5, 128), (8, 33), (9, 70), (12, 55), (16, 16), (24, 5)]
SHAPES += [(64, 12), (17, 20), (32, 40), (33, 40)]
LARGE_SHAPES = [(5, 512), (12, 512), (128, 4), (64, 64)]


def dense(n: int, m: int, rng: torch.Generator) -> Tensor:
    return torch.randn(BATCH, n, m, generator=rng)


def low_rank(n: int, m: int, rng: torch.Generator) -> Tensor:
    rank = int(torch.randint(1, min(n, m) + 1, (), generator=rng))
    return torch.randn(BATCH, n, rank, generator=rng) @ torch.randn(BATCH, rank, m, generator=rng)


def rank_one(n: int, m: int, rng: torch.Generator) -> Tensor:
    return torch.randn(BATCH, n, 1, generator=rng) @ torch.randn(BATCH, 1, m, generator=rng)


def nearly_equal_rows(n: int, m: int, rng: torch.Generator) -> Tensor:
    spread = 10 ** (-6 * torch.rand(BATCH, 1, 1, generator=rng))  # s/c from 1e-6 to 1
    return torch.randn(BATCH, 1, m, generator=rng) + spread * torch.randn(BATCH, n, m, generator=rng)


def spread_of_one_millionth(n: int, m: int, rng: torch.Generator) -> Tensor:
    return torch.randn(BATCH, 1, m, generator=rng) + 1e-6 * torch.randn(BATCH, n, m, generator=rng)


def repeated_spectrum(n: int, m: int, rng: torch.Generator) -> Tensor:
    basis = torch.linalg.qr(torch.randn(BATCH, max(n, m), min(n, m), generator=rng)).Q
    return basis if n >= m else basis.mT


def geometric_spectrum(n: int, m: int, rng: torch.Generator) -> Tensor:
    return torch.randn(BATCH, n, m, generator=rng) * 10 ** -torch.linspace(0, 12, n)[:, None]


def huge_column(n: int, m: int, rng: torch.Generator) -> Tensor:
    z = torch.randn(BATCH, n, m, generator=rng)
    z[..., 0] *= 1e6
    return z


def mostly_zero(n: int, m: int, rng: torch.Generator) -> Tensor:
    return torch.randn(BATCH, n, m, generator=rng) * (torch.rand(BATCH, n, m, generator=rng) < 0.2)


KINDS: list[Callable[[int, int, torch.Generator], Tensor]] = [
    dense,
    low_rank,
    rank_one,
    nearly_equal_rows,
    spread_of_one_millionth,
    repeated_spectrum,
    geometric_spectrum,
    huge_column,
    mostly_zero,
]


def relative_error(ours: Tensor, exact: Tensor) -> float:
    assert bool((ours[exact == 0] == 0).all())
    kept = exact > 0
    return float(((ours.double() - exact).abs() / exact)[kept].max()) if bool(kept.any()) else 0.0


def worst_errors(matrices: int, method: str, seed: int, device: str = "cpu") -> dict[str, float]:
    """The largest relative error of each public function over this many matrices, every kind at every shape in turn."""
    rng = torch.Generator().manual_seed(seed)
    worst = {"score": 0.0, "norm": 0.0, "centered norm": 0.0}
    for turn in range(matrices // BATCH):
        shapes = LARGE_SHAPES if turn % 10 == 9 else SHAPES
        n, m = shapes[int(torch.randint(len(shapes), (), generator=rng))]
        scale = 10 ** (60 * torch.rand(BATCH, 1, 1, generator=rng, dtype=torch.float64) - 30)
        z = (KINDS[turn % len(KINDS)](n, m, rng).double() * scale).float()
        exact = torch.linalg.svdvals(z.double()).sum(-1)
        frobenius = torch.linalg.vector_norm(z.double(), dim=(-2, -1))
        exact_score = torch.where(frobenius > 0, exact / (frobenius * max(n, m) ** 0.5), 0.0)
        deviation = z.double() - z.double()[:, :1]
        centered = torch.linalg.svdvals(deviation - deviation.mean(-2, keepdim=True)).sum(-1)
        given = z.to(device)
        found = {
            "score": relative_error(nuclear_score(given, method=method).cpu(), exact_score),
            "norm": relative_error(nuclear_norm(given, method=method).cpu(), exact),
            "centered norm": relative_error(nuclear_norm(given, center=True, method=method).cpu(), centered),
        }
        worst = {name: max(worst[name], found[name]) for name in worst}
    return worst
