"""Elliptical novelty within an episode (E3B), for all rows of a rollout at once.

    b_l = φ_lᵀ C_{l−1}⁻¹ φ_l,        C_l = λ I + Σ_{i ≤ l} φ_i φ_iᵀ        over the states of the episode

Instead of one rank-one update of C⁻¹ per row (Sherman-Morrison), a block of rows Φ is processed at once. By the matrix
determinant lemma det(I + Φ C₀⁻¹ Φᵀ) = Π_l (1 + b_l), for every leading part of the block, so that

    I + Φ C₀⁻¹ Φᵀ = L Lᵀ (Cholesky)       b_l = L_ll² − 1          C⁻¹ = C₀⁻¹ − Yᵀ Y,   Y = L⁻¹ Φ C₀⁻¹

with C₀⁻¹ as it was before the block, and I/λ for an episode that starts in it; products of rows of different episodes
are masked. Everything is float64: C⁻¹ holds numbers from 1/λ down to one over the sum of squares of a whole episode.
"""

from __future__ import annotations

import torch
from torch import Tensor

from intrigue.nn.episode_segments import EpisodeSegments
from intrigue.nn.episodic_memory import PerEnvironment

# Rows in a block: the factorisation costs BLOCK³ per environment.
BLOCK = 256


class InverseCovariance(PerEnvironment):
    """C⁻¹ of the current episode of each environment."""

    inverse: Tensor  # (N, D, D)
    inverse_initial: Tensor  # (D, D)  I / λ
    written: Tensor  # (N,)  states in it

    def __init__(self, width: int, ridge: float) -> None:
        super().__init__()
        self.ridge = ridge
        self.add_state("inverse", torch.eye(width, dtype=torch.float64) / ridge)
        self.add_state("written", torch.zeros((), dtype=torch.int64))

    def episode_lengths(self, envs: int) -> Tensor:
        """States of each current episode so far, (N,)."""
        return self.state("written", envs)

    def compute_bonuses(self, segments: EpisodeSegments, entries: Tensor) -> Tensor:
        """b of each place (L, N) from its encoding (L, N, D); 0 in empty places."""
        inverse, current, bonuses = self.state("inverse", entries.shape[1]), torch.zeros_like(segments.episode[0]), []
        blocks = self._blocks(segments, entries)
        for rows, episode in blocks[:-1]:
            bonus, inverse = self._advance(rows, episode, inverse, current)
            current = episode[:, -1]
            bonuses.append(bonus)
        last, _ = self._factor(*blocks[-1], inverse, current)
        return torch.cat([*bonuses, _bonuses_from_factor(last)], 1).mT

    @torch.no_grad()
    def add(self, segments: EpisodeSegments, entries: Tensor | None) -> None:
        """Add the ongoing states (encodings of others must be zero), and start anew where an episode ended."""
        envs = segments.active.shape[1]
        self.resize(envs)
        inverse, current = self.inverse, torch.zeros_like(segments.episode[0])
        if entries is not None:
            for rows, episode in self._blocks(segments, entries):
                _, inverse = self._advance(rows, episode, inverse, current)
                current = episode[:, -1]
        over = (current != segments.num_ended).reshape(-1, 1, 1)
        self.inverse = self.inverse_initial.where(over, inverse)
        self.written = segments.updated_lengths(self.written)

    def _blocks(self, segments: EpisodeSegments, entries: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Rows (N, b, D) and their episodes (N, b), in blocks of places."""
        rows = entries.transpose(0, 1).double() * segments.active.mT.unsqueeze(-1)
        return list(zip(rows.split(BLOCK, 1), segments.episode.mT.split(BLOCK, 1), strict=True))

    def _factor(self, rows: Tensor, episode: Tensor, inverse: Tensor, current: Tensor) -> tuple[Tensor, Tensor]:
        """L (N, b, b), and Φ C₀⁻¹ (N, b, D) with each row's own C₀; `inverse` belongs to the episode `current` (N,)."""
        old = (episode == current.unsqueeze(-1)).unsqueeze(-1)  # (N, b, 1)
        weighted = torch.where(old, rows @ inverse, rows / self.ridge)
        same = episode.unsqueeze(-1) == episode.unsqueeze(-2)
        gram = (weighted @ rows.mT) * same
        unit = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        return torch.linalg.cholesky(unit + gram), weighted

    def _advance(self, rows: Tensor, episode: Tensor, inverse: Tensor, current: Tensor) -> tuple[Tensor, Tensor]:
        """b (N, b), and C⁻¹ (N, D, D) of the episode of the last place in the block."""
        factor, weighted = self._factor(rows, episode, inverse, current)
        last = episode[:, -1:]
        step = torch.linalg.solve_triangular(factor, weighted * (episode == last).unsqueeze(-1), upper=False)
        base = torch.where((last == current.unsqueeze(-1)).unsqueeze(-1), inverse, self.inverse_initial)
        return _bonuses_from_factor(factor), torch.baddbmm(base, step.mT, step, alpha=-1)


def _bonuses_from_factor(factor: Tensor) -> Tensor:
    """L_ll² − 1, clamped at zero against rounding."""
    return (factor.diagonal(dim1=-2, dim2=-1).square() - 1).clamp_min(0)
