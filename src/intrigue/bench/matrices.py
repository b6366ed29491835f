"""Matrices on which nuclear norms are judged, easy and hard, by name."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

Maker = Callable[[int, int, int, Generator], Tensor]


def well_conditioned(count: int, n: int, m: int, rng: Generator) -> Tensor:
    """Independent standard normal entries."""
    return torch.randn(count, n, m, generator=rng)


def nearly_equal_rows(spread: float) -> Maker:
    """Rows around a shared row of the same size, apart by s/c = `spread`."""

    def make(count: int, n: int, m: int, rng: Generator) -> Tensor:
        shared = torch.randn(count, 1, m, generator=rng, dtype=torch.float64)
        return (shared + spread * torch.randn(count, n, m, generator=rng, dtype=torch.float64)).float()

    return make


def repeated_spectrum(count: int, n: int, m: int, rng: Generator) -> Tensor:
    """All singular values equal."""
    basis = torch.linalg.qr(torch.randn(count, max(n, m), min(n, m), generator=rng, dtype=torch.float64)).Q
    rows: Tensor = basis if n >= m else basis.mT
    return rows.float()


def badly_scaled(count: int, n: int, m: int, rng: Generator) -> Tensor:
    """Rows over twelve decades, matrices over forty."""
    rows = 10 ** -torch.linspace(0, 12, n, dtype=torch.float64)[:, None]
    whole = 10 ** (40 * torch.rand(count, 1, 1, generator=rng, dtype=torch.float64) - 20)
    return (torch.randn(count, n, m, generator=rng, dtype=torch.float64) * rows * whole).float()


def rank_one(count: int, n: int, m: int, rng: Generator) -> Tensor:
    """Every row a multiple of one."""
    return torch.randn(count, n, 1, generator=rng) @ torch.randn(count, 1, m, generator=rng)


FAMILIES: dict[str, Maker] = {
    "well conditioned": well_conditioned,
    **{f"s/c 1e-{decade}": nearly_equal_rows(10.0**-decade) for decade in range(1, 7)},
    "repeated spectrum": repeated_spectrum,
    "badly scaled": badly_scaled,
    "rank one": rank_one,
}


def exact_score(z: Tensor) -> Tensor:
    """‖Z‖_*/(‖Z‖_F √max(n, m)) by float64 singular values, on the CPU."""
    wide = z.detach().cpu().double()
    frobenius = torch.linalg.vector_norm(wide, dim=(-2, -1))
    unit = wide / torch.where(frobenius > 0, frobenius, 1.0)[:, None, None]
    longest: float = max(z.shape[-2:]) ** 0.5
    values: Tensor = torch.linalg.svdvals(unit)
    return values.sum(-1) / longest
