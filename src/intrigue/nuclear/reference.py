"""Nuclear and Frobenius norms in float64, by Gram matrix or by SVD, without overflow, underflow or a host read-back.

Both methods return the ratio ‖Z‖_*/‖Z‖_F and ‖Z‖_F, from which every public function follows:

    gram   G = Z Zᵀ or Zᵀ Z, whichever is smaller;  ‖Z‖_F² = tr G;  ratio = Σ √λ_i(G / tr G)
    svd    ratio = Σ σ_i(Z / ‖Z‖_F)

Range: squares of float32 numbers (1e-45 to 3e38) fit into float64 as they are, so only float64 input is brought near 1
first, by a power of two, which is exact.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from intrigue.nuclear.inputs import Center

# Entries converted to float64 at a time. 8 MiB stay near the cache on a CPU (a third less time than all at once,
# measured at 2048 × 5 × 512); 1 GiB bounds the memory taken on a GPU.
CPU_ENTRIES = 2**20
GPU_ENTRIES = 2**27
# Matrices in one call of CUDA's eigenvalue solver: it answers 200,000 with an internal error; 16,384 were seen to work.
GPU_MATRICES = 2**14


class Norms(NamedTuple):
    """Per matrix, float64: ‖Z‖_F = frobenius · 2^exponent and ‖Z‖_* = ratio · ‖Z‖_F. NaN where Z is not finite."""

    ratio: Tensor  # (B,)
    frobenius: Tensor  # (B,)
    exponent: Tensor  # (B,) int32


def reference_norms(z: Tensor, center: Center, by_svd: bool) -> Norms:
    """Norms of the matrices in `z` (B, n, m), by their singular values or by their Gram matrices."""
    on_cpu, size = z.device.type == "cpu", z.shape[-2] * z.shape[-1]
    matrices = CPU_ENTRIES // size if on_cpu else min(GPU_MATRICES, GPU_ENTRIES // size)
    chunks = [_norms_of_chunk(chunk, center, by_svd) for chunk in torch.split(z, max(1, matrices))]
    return Norms(*(torch.cat(column) for column in zip(*chunks, strict=True)))


def shift(x: Tensor, exponent: Tensor) -> Tensor:
    """x · 2^exponent, in two halves because 2^1024 and 2^-1075 are no float64 numbers while the product may be one."""
    half = torch.div(exponent, 2, rounding_mode="floor")
    return x * torch.exp2(half.double()) * torch.exp2((exponent - half).double())


def center_rows(z: Tensor, center: Center) -> Tensor:
    """Rows minus the first or the mean row. The first goes first, so that nearly equal rows lose nothing."""
    if center == "none":
        return z
    offset = z - z[:, :1]
    return offset if center == "first" else offset - offset.mean(dim=-2, keepdim=True)


def _norms_of_chunk(chunk: Tensor, center: Center, by_svd: bool) -> Norms:
    z = chunk.double()
    exponent = torch.zeros(z.shape[0], dtype=torch.int32, device=z.device)
    if chunk.dtype == torch.float64:
        z, exponent = _near_one(z)
    if center != "none":
        z = center_rows(z, center)
        if chunk.dtype == torch.float64:  # Deviations may be far smaller than what they deviate from.
            z, smaller = _near_one(z)
            exponent = exponent + smaller
    ratio, frobenius = _ratio_by_svd(z) if by_svd else _ratio_by_gram(z)
    # Rounding may leave the ratio an ulp outside its bounds [1, √min(n, m)], by Gram up to 1e-8 for equal rows.
    bounded = ratio.clamp(1.0, min(z.shape[-2:]) ** 0.5)
    ratio = torch.where(frobenius > 0, bounded, 0.0)
    broken = ~torch.isfinite(frobenius)
    return Norms(ratio.masked_fill(broken, torch.nan), frobenius.masked_fill(broken, torch.nan), exponent)


def _near_one(z: Tensor) -> tuple[Tensor, Tensor]:
    """Each matrix over the power of two that brings its largest entry into [1/2, 1), and that power's exponent."""
    peak = z.abs().amax(dim=(-2, -1))  # (B,)
    usable = torch.where(torch.isfinite(peak), peak, 0.0)
    exponent = torch.frexp(usable).exponent.to(torch.int32)
    return shift(z, -exponent[:, None, None]), exponent


def _ratio_by_gram(z: Tensor) -> tuple[Tensor, Tensor]:
    gram = z @ z.mT if z.shape[-2] <= z.shape[-1] else z.mT @ z  # (B, d, d)
    trace = gram.diagonal(dim1=-2, dim2=-1).sum(dim=-1)  # Every squared entry is in it: not finite iff z is not.
    usable = (torch.isfinite(trace) & (trace > 0))[:, None, None]
    unit = torch.where(usable, gram / trace[:, None, None], 0.0)
    # Rounding makes vanished eigenvalues slightly negative.
    return torch.linalg.eigvalsh(unit).clamp_min(0).sqrt().sum(dim=-1), trace.sqrt()


def _ratio_by_svd(z: Tensor) -> tuple[Tensor, Tensor]:
    frobenius = torch.linalg.vector_norm(z, dim=(-2, -1))
    usable = (torch.isfinite(frobenius) & (frobenius > 0))[:, None, None]
    unit = torch.where(usable, z / frobenius[:, None, None], 0.0)
    return torch.linalg.svdvals(unit).sum(dim=-1), frobenius
