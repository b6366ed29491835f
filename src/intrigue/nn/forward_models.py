"""K models that predict the next encoding from an encoding and an action, batched over members, and their loss.

    ẑ_k = f_k(φ(s), a),      loss = Σ_k mean over a random share of the samples of error(ẑ_k, φ(s'))  +  L_φ

    φ: `features`.  L_φ: the encoder's own loss (inverse dynamics), zero for a frozen one.  The share, `keep`, is drawn
    per sample and member; it and the initialisation alone make members differ (Disagreement's code).

    measure    mean  mean_d (ẑ_d − φ_d)²   Disagreement, large-scale curiosity
               half  ½ Σ_d (ẑ_d − φ_d)²    Pathak 2017
               norm  ‖ẑ − φ‖₂              URLB

One model is ICM's forward model; several are what Disagreement and the ensemble form of NNM compare.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from intrigue.nn.encoders import StateFeatures
from intrigue.nn.feature_noise import FeatureNoise
from intrigue.nn.networks import DynamicsEnsemble
from intrigue.ops.matmul import EnsembleLinear
from intrigue.ops.row_norm import row_norm
from intrigue.rng import Rng, uniform
from intrigue.types import Transitions

Measure = Literal["mean", "half", "norm"]
Init = Literal["orthogonal", "uniform"]


class ForwardModels(nn.Module):
    """An ensemble over an encoder that other modules may share.

    Members are Disagreement's residual nets, or with `two_layer` URLB's, initialised as it says.
    """

    def __init__(
        self,
        members: int,
        features: StateFeatures,
        action_width: int,
        noise: FeatureNoise,
        *,
        hidden: int,
        blocks: int = 0,
        two_layer: Init | None = None,
        keep: float = 1.0,
        measure: Measure = "mean",
    ) -> None:
        super().__init__()
        self.members, self.keep = members, keep
        self.features, self.noise = features, noise
        self.measure: Measure = measure
        self.ensemble: nn.Module
        if two_layer is None:
            self.ensemble = DynamicsEnsemble(members, features.width, action_width, hidden, blocks)
        else:
            self.ensemble = TwoLayerEnsemble(members, features.width, action_width, hidden, two_layer)

    def forward(self, encoded: Tensor, action: Tensor) -> Tensor:
        """Encodings (T, N, D) and action inputs (T, N, A) to every member's prediction, (T, N, K, D)."""
        lead = encoded.shape[:-1]
        if self.noise.sigma and self.noise.draw == "member":
            seen = self.noise.for_members(encoded, self.members).flatten(0, -3).movedim(1, 0)  # (K, B, D)
        else:
            seen = self.noise(encoded).flatten(0, -2)  # (B, D): a shared input is not copied for each member
        predicted = self.ensemble(seen, action.flatten(0, -2))  # (K, B, D)
        out: Tensor = predicted.movedim(0, 1).unflatten(0, lead)
        return out

    def errors(self, phi: Tensor, next_phi: Tensor, action: Tensor) -> Tensor:
        """Error of each member as `measure` says, (T, N, K), from encodings of s and s'."""
        offset: Tensor = self.forward(phi, action) - self.noise.for_members(next_phi, self.members)
        match self.measure:
            case "mean":
                return offset.square().mean(-1)
            case "half":
                return offset.square().sum(-1) / 2
            case "norm":
                return row_norm(offset)

    def losses(self, batch: Transitions, rng: Rng) -> tuple[Tensor, Tensor]:
        """The encoder's own loss, (), and each member's, (K,); gradients of the latter reach only a joint encoder."""
        phi, next_phi = self.features.encode_pair(batch)
        own = self.features.inverse_loss(self.noise(phi), self.noise(next_phi), batch.action)
        if not self.features.shaped_by_forward:
            phi, next_phi = phi.detach(), next_phi.detach()
        error = self.errors(phi, next_phi, batch.action)
        if self.keep < 1:
            kept = uniform(error.shape, rng) < self.keep
            error = error * kept / self.keep  # unbiased: the kept samples stand in for the dropped ones
        return own, error.mean(dim=(0, 1))

    def loss(self, batch: Transitions, rng: Rng) -> Tensor:
        """The models' losses and the encoder's, added."""
        own, each = self.losses(batch, rng)
        loss: Tensor = own + each.sum()
        return loss


class TwoLayerEnsemble(nn.Module):
    """K models [φ, a] → hidden, ReLU → φ, as URLB's ICM (orthogonal weights) and Disagreement (PyTorch's uniform)."""

    def __init__(self, members: int, features: int, action_width: int, hidden: int, init: Init) -> None:
        super().__init__()
        self.first = EnsembleLinear(members, features + action_width, hidden)
        self.last = EnsembleLinear(members, hidden, features)
        for layer in (self.first, self.last):
            if init == "orthogonal":
                for weight in layer.weight:
                    nn.init.orthogonal_(weight)
            else:
                bound = layer.weight.shape[1] ** -0.5  # as nn.Linear initialises weights and biases
                nn.init.uniform_(layer.weight, -bound, bound)
                nn.init.uniform_(layer.bias, -bound, bound)

    def forward(self, features: Tensor, action: Tensor) -> Tensor:
        """Features (B, D), or (K, B, D) when members see different ones, and actions (B, A) -> (K, B, D)."""
        joined = torch.cat([features, action.expand(*features.shape[:-1], -1)], -1)
        out: Tensor = self.last(functional.relu(self.first(joined)))
        return out
