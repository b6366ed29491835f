"""State encoders for bonuses, and the inverse-dynamics loss that trains some of them.

    random    frozen random network                                      (Disagreement's default features)
    idf       trained to predict the action from φ(s), φ(s')             (inverse-dynamics features)
    joint     trained by the inverse loss and by the forward model       (Pathak 2017)
    icm       the same, ending in LayerNorm and tanh                     (as URLB's icm_apt ends)
    trunk     one layer, LayerNorm, tanh; one forward and one inverse model of first-power errors (URLB's icm_apt)
    identity  the observation vector itself

`features` fixes the length of an encoding: `layernorm` (no affine; length √D), `unit` (length 1) or `raw`. A bonus
that is invariant to the scale of encodings needs encodings of fixed length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from intrigue.errors import ConfigError
from intrigue.nn.feature_noise import FeatureNoise
from intrigue.nn.icm_dynamics import IcmDynamics
from intrigue.nn.networks import Encoder, freeze, icm_trunk, init_normc, mlp
from intrigue.spaces import ActionSpec, ObsSpec, Spaces
from intrigue.types import Encoded, Prepared, Transitions

EncoderKind = Literal["random", "idf", "joint", "icm", "trunk", "identity"]
FeatureLength = Literal["layernorm", "raw", "unit"]


class StateFeatures(nn.Module):
    """φ(s): an encoder of one of these kinds, with a normalised output."""

    def __init__(self, kind: EncoderKind, length: FeatureLength, spaces: Spaces, feature_dim: int, hidden: int) -> None:
        super().__init__()
        if kind == "identity" and spaces.obs.kind == "pixels":
            raise ConfigError("reward.encoder: 'identity' needs a vector observation; use 'random', 'idf' or 'icm'.")
        self.kind: EncoderKind = kind
        self.length: FeatureLength = length
        self.width = spaces.obs.size if kind == "identity" else feature_dim
        self.encoder: nn.Module = (
            nn.Identity() if kind == "identity" else _encoder(kind, spaces.obs, feature_dim, hidden)
        )
        self.inverse: nn.Module | None = None
        if kind in ("idf", "joint", "icm"):
            self.inverse = InverseModel(self.width, spaces.action, hidden)
            if kind == "idf" and spaces.obs.kind == "pixels":
                for layer in self.inverse.guess:
                    if isinstance(layer, nn.Linear):
                        init_normc(layer)  # DIS utils.py `fc`, as the encoder's own dense layer
        elif kind == "trunk":
            self.inverse = IcmDynamics(self.width, spaces.action, hidden)  # its loss includes its forward model's
        self.shaped_by_forward = kind in ("joint", "icm")
        """Whether gradients of a forward model's error reach the encoder."""

    def forward(self, obs: Tensor) -> Tensor:
        """(..., *obs) -> (..., D)."""
        encoded = self.encoder(obs)
        match self.length:
            case "layernorm":
                return functional.layer_norm(encoded, (self.width,))
            case "unit":
                return functional.normalize(encoded, dim=-1)
            case "raw":
                return torch.as_tensor(encoded)

    def encode_obs(self, batch: Transitions) -> Tensor:
        """φ(s), (T, N, D)."""
        return batch.phi if isinstance(batch, Encoded) else self.forward(batch.obs)

    def encode_pair(self, batch: Transitions) -> tuple[Tensor, Tensor]:
        """φ(s) and φ(s'), each (T, N, D). Images that occur as s' and then as s are encoded once, without gradients."""
        if isinstance(batch, Encoded):
            return batch.phi, batch.next_phi
        phi = self.forward(batch.obs)
        if self.kind == "identity" or batch.obs.dim() != 5 or torch.is_grad_enabled():
            return phi, self.forward(batch.next_obs)
        return phi, encode_next_obs(batch, phi, self.forward)

    def inverse_loss(self, features: Tensor, next_features: Tensor, action: Tensor) -> Tensor:
        """The encoder's own loss; zero for encoders that are not trained."""
        if self.inverse is None:
            return features.new_zeros(())
        loss: Tensor = self.inverse(features, next_features, action)
        return loss

    def encoder_loss(self, batch: Transitions, noise: FeatureNoise) -> Tensor:
        """The encoder's own loss on a batch, for rewards without forward models; zero if it is not trained."""
        if self.inverse is None:
            return torch.zeros((), device=batch.reward.device)
        if self.kind == "trunk" and batch.obs.dim() == 3:
            # One pass over twice the rows: on a GPU so small a layer is bound by its launch.
            phi, next_phi = self.forward(torch.cat([batch.obs, batch.next_obs])).chunk(2)
        else:
            phi, next_phi = self.forward(batch.obs), self.forward(batch.next_obs)
        return self.inverse_loss(noise(phi), noise(next_phi), batch.action)


def encode_next_obs(batch: Transitions, phi: Tensor, encode: Callable[[Tensor], Tensor]) -> Tensor:
    """φ(s'), (T, N, D), given φ(s): the encoding of a state that is the next row's s is reused."""
    fresh = ~is_next_row_obs(batch)  # (T, N)
    if int(fresh.sum()) > fresh.numel() // 2:
        return encode(batch.next_obs)
    next_phi = phi.roll(-1, 0)
    next_phi[fresh] = encode(batch.next_obs[fresh])
    return next_phi


def is_next_row_obs(batch: Transitions) -> Tensor:
    """Where s' equals, element by element, s of the next row of the same environment, (T, N).

    Compares the states themselves, because rows need not be consecutive steps; false in the last row.
    """
    next_obs, obs = batch.next_obs, batch.obs
    if isinstance(batch, Prepared):
        next_obs, obs = batch.raw_next_obs, batch.raw_obs  # comparing bytes is faster than floats
    same = torch.zeros_like(batch.valid)
    same[:-1] = (_words(next_obs)[:-1] == _words(obs)[1:]).all(-1)
    return same


def _words(states: Tensor) -> Tensor:
    """States (T, N, ...) as rows (T, N, W), bytes as 64-bit words where their number allows it."""
    rows = states.flatten(2).contiguous()
    return rows.view(torch.int64) if rows.dtype == torch.uint8 and rows.shape[-1] % 8 == 0 else rows


class InverseModel(nn.Module):
    """The loss of predicting the action from two encodings: cross-entropy of classes, squared error of numbers."""

    def __init__(self, width: int, spec: ActionSpec, hidden: int) -> None:
        super().__init__()
        self.spec = spec
        self.guess = mlp((2 * width, hidden, spec.width), nn.ReLU)  # DIS auxiliary_tasks: one hidden ReLU layer

    def forward(self, features: Tensor, next_features: Tensor, action: Tensor) -> Tensor:
        """Mean loss over all leading axes; `action` is one-hot classes, part after part, or numbers."""
        guess = self.guess(torch.cat([features, next_features], -1))
        if self.spec.kind == "continuous":
            return functional.mse_loss(guess, action)
        parts = zip(guess.split(self.spec.sizes, -1), action.split(self.spec.sizes, -1), strict=True)
        return torch.stack([-(target * part.log_softmax(-1)).sum(-1).mean() for part, target in parts]).sum()


def encode_action(spec: ActionSpec, action: Tensor) -> Tensor:
    """Stored actions (..., *action) as network inputs (..., width): one-hot classes, or numbers."""
    match spec.kind:
        case "discrete":
            return functional.one_hot(action, spec.sizes[0]).float()
        case "multi-discrete":
            parts = [functional.one_hot(action[..., i], size).float() for i, size in enumerate(spec.sizes)]
            return torch.cat(parts, -1)
        case "continuous":
            return action.float()


def _encoder(kind: EncoderKind, spec: ObsSpec, feature_dim: int, hidden: int) -> nn.Module:
    if kind == "trunk":
        return icm_trunk(spec, feature_dim)
    encoder = Encoder(spec, feature_dim, hidden)
    if kind == "random":
        return freeze(encoder)
    if kind == "icm":
        # As URLB's icm_apt ends, whose trunk is one layer: LayerNorm and tanh bound what the forward loss can shrink.
        return nn.Sequential(encoder, nn.LayerNorm(feature_dim), nn.Tanh())
    return encoder
