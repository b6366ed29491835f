"""K models that predict the next encoding from an encoding and an action, batched over members, and their loss.

    ẑ_k = f_k(φ(s), a),      loss = Σ_k mean over a random share of the samples of mean_d (ẑ_kd − φ_d(s'))²  +  L_φ

    φ: `features`.  L_φ: the encoder's own loss (inverse dynamics), zero for a frozen one.  The share, `keep`, is drawn
    per sample and member; with the initialisation it is all that makes members differ (Disagreement's code).

One model is ICM's forward model; several are what Disagreement and the ensemble form of NNM compare.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from intrigue.features import StateFeatures
from intrigue.networks import DynamicsEnsemble
from intrigue.noise import FeatureNoise
from intrigue.types import Transitions


class ForwardModels(nn.Module):
    """An ensemble over an encoder it may share with others."""

    def __init__(
        self,
        members: int,
        features: StateFeatures,
        action_width: int,
        noise: FeatureNoise,
        *,
        hidden: int,
        blocks: int,
        keep: float = 1.0,
    ) -> None:
        super().__init__()
        self.members, self.keep = members, keep
        self.features, self.noise = features, noise
        self.ensemble = DynamicsEnsemble(members, features.width, action_width, hidden, blocks)

    def forward(self, encoded: Tensor, action: Tensor) -> Tensor:
        """Encodings (T, N, D) and action inputs (T, N, A) to every member's prediction, (T, N, K, D)."""
        lead = encoded.shape[:-1]
        if self.noise.sigma and self.noise.draw == "member":
            seen = self.noise.for_members(encoded, self.members).flatten(0, -3).movedim(1, 0)  # (K, B, D)
        else:
            seen = self.noise(encoded).flatten(0, -2)  # (B, D): what all members share is not copied for each
        predicted = self.ensemble(seen, action.flatten(0, -2))  # (K, B, D)
        out: Tensor = predicted.movedim(0, 1).unflatten(0, lead)
        return out

    def errors(self, here: Tensor, there: Tensor, action: Tensor) -> Tensor:
        """Squared error of each member, mean over dimensions, (T, N, K), from encodings of s and s'."""
        wanted = self.noise.for_members(there, self.members)
        error: Tensor = (self.forward(here, action) - wanted).square().mean(-1)
        return error

    def loss(self, batch: Transitions, rng: Generator) -> Tensor:
        """The models' loss plus the encoder's; only the ICM trunk lets the forward error shape the encoding."""
        here, there = self.features(batch.obs), self.features(batch.next_obs)
        own = self.features.inverse_loss(here, there, batch.action)
        if self.features.kind != "icm":
            here, there = here.detach(), there.detach()
        error = self.errors(here, there, batch.action)
        if self.keep < 1:
            kept = torch.rand(error.shape, generator=rng, device=error.device) < self.keep
            error = error * kept / self.keep  # unbiased: a dropped sample is made up for by the kept
        loss: Tensor = own + error.mean(dim=(0, 1)).sum()
        return loss
