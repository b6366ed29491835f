"""Particle-based entropy: a state is worth the distance to its nearest neighbours (APT, arXiv:2103.04551).

    d_j  = ‖z − z⁽ʲ⁾‖₂,  j = 1 … k nearest of the candidates        (`knn.knn_distances`)
    u_j  = max(d_j / ν − c, 0)                                        ν: normaliser, c: `clip`
    r    = log(1 + mean_j u_j)   or   log(1 + u_k)                    `average`; without `log`, the argument less 1

    ν    1, or the running mean, standard deviation or variance of the distances that enter r, this batch included

APT, RE3, APS, CIC and ProtoRL differ only in these choices. Scoring is pure: it merges the statistics with the batch
without storing them, and `observe` stores what `score` used, from the parts it returned.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from intrigue.nn.knn import Backend, Own, knn_distances, require_faiss
from intrigue.nn.normalize import Moments, RunningMoments
from intrigue.types import Components

Normalizer = Literal["none", "mean", "std", "variance"]

# Avoids division by zero when all states are equal.
SMALLEST = 1e-8


class ParticleEntropy(nn.Module):
    """The k-nearest-neighbour estimate of each row's novelty, with its running normaliser."""

    def __init__(
        self,
        k: int,
        *,
        count_self: bool = True,
        average: bool = True,
        normalizer: Normalizer = "none",
        clip: float = 0.0,
        log: bool = True,
        backend: Backend = "exact",
    ) -> None:
        super().__init__()
        if backend == "faiss":
            require_faiss()
        self.k, self.count_self, self.average = k, count_self, average
        self.normalizer: Normalizer = normalizer
        self.clip, self.log = clip, log
        self.backend: Backend = backend
        self.moments = RunningMoments() if normalizer != "none" else None

    def score(
        self,
        encoded: Tensor,
        valid: Tensor,
        candidates: Tensor | None = None,
        *,
        allowed: Tensor | None = None,
        aligned: bool = False,
    ) -> tuple[Tensor, Components]:
        """Novelty of encodings (T, N, D) and the parts `observe` wants back, each (T, N).

        Without `candidates` the valid rows of the batch are searched. Otherwise they are (M, D), of which `allowed`
        (M,) may be neighbours; `aligned`: the first T·N of them are the batch itself, so `count_self` applies.
        """
        if candidates is None:
            candidates, allowed, aligned = encoded.flatten(0, 1), valid.flatten(), True
        own: Own = ("count" if self.count_self else "skip") if aligned else "no"
        query = encoded.flatten(0, 1)
        near = knn_distances(query, candidates, self.k, own=own, allowed=allowed, backend=self.backend)
        distance, used = near.distance.unflatten(0, valid.shape), near.found.unflatten(0, valid.shape)  # (T, N, k)
        if not self.average:
            # The k-th, or the last where there are fewer.
            last = (used.sum(-1, keepdim=True) - 1).clamp_min(0)
            distance, used = distance.gather(-1, last), used.gather(-1, last)
        count = used.sum(-1)
        parts = self._parts(distance, used, count)
        above = (distance / self._unit(parts, valid) - self.clip).clamp_min(0).where(used, 0)
        novelty = above.sum(-1) / count.clamp_min(1)
        return novelty.log1p() if self.log else novelty, parts

    @torch.no_grad()
    def observe(self, parts: Components, valid: Tensor) -> None:
        """Store the statistics that `score` used for these parts."""
        if self.moments is not None:
            self.moments.commit(self._merge(self.moments, parts, valid))

    def _parts(self, distance: Tensor, used: Tensor, count: Tensor) -> Components:
        """Mean distance of each row and, for a normaliser, the terms of the moments of all distances."""
        mean = distance.sum(-1) / count.clamp_min(1)
        if self.moments is None:
            return {"distance": mean}
        apart = (distance - mean.unsqueeze(-1)).where(used, 0)
        spread = (apart.square().sum(-1) / count.clamp_min(1)).sqrt()
        return {"distance": mean, "distance_spread": spread, "neighbours": count.to(mean.dtype)}

    def _unit(self, parts: Components, valid: Tensor) -> Tensor | float:
        """ν, from the moments with this batch merged."""
        if self.moments is None:
            return 1.0
        merged = self._merge(self.moments, parts, valid)
        match self.normalizer:
            case "mean":
                unit = merged.mean
            case "std":
                unit = merged.var.sqrt()
            case _:
                unit = merged.var
        return unit.clamp_min(SMALLEST).to(parts["distance"].dtype)

    @staticmethod
    def _merge(moments: RunningMoments, parts: Components, valid: Tensor) -> Moments:
        """All distances of the valid rows pooled (variance = mean of variances + variance of means), then merged."""
        weight = parts["neighbours"].double() * valid
        mean, spread = parts["distance"].double(), parts["distance_spread"].double()
        count = weight.sum()
        share = weight / count.clamp_min(1)
        center = (share * mean).sum()
        var = (share * (spread.square() + (mean - center).square())).sum()
        return moments.moments().merge(Moments(count, center, var))
