"""A contrastive encoder: two augmented views of a state are similar, views of other states are not.

    loss = mean over all 2B views of  −log  exp(u·u⁺/τ) / Σ_{v ≠ u} exp(u·v/τ),      u = h(z)/‖h(z)‖, z = φ(view)

    φ: `trunk` and `encoder`.  h: `head`, linear, used by the loss alone.  u⁺: the other view of the same state.

SimCLR's loss (Chen et al. 2020, arXiv:2002.05709). Images are shifted at random by up to `SHIFT` pixels, as APT's
code does. Vectors, which the papers do not augment, are scaled at random (amplitude scaling, arXiv:2004.14990).
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from intrigue.nn.feature_noise import FeatureNoise
from intrigue.nn.networks import StateTrunk, init_orthogonal, relu_net
from intrigue.rng import Rng, uniform
from intrigue.spaces import ObsSpec

SHIFT = 4  # forhaoliu/mini_apt train.py: image_pad 4
AMPLITUDE = (0.8, 1.2)  # ours


class ContrastiveFeatures(nn.Module):
    """φ(s) and the loss that trains it."""

    def __init__(
        self, spec: ObsSpec, noise: FeatureNoise, *, feature_dim: int, hidden: int, projection: int, temperature: float
    ) -> None:
        super().__init__()
        self.spec, self.noise, self.temperature = spec, noise, temperature
        self.trunk = StateTrunk(spec, feature_dim)
        self.encoder = nn.Identity() if spec.kind == "pixels" else relu_net(spec.size, hidden, feature_dim)
        self.head = init_orthogonal(nn.Linear(feature_dim, projection), 1.0)

    def forward(self, obs: Tensor) -> Tensor:
        """(..., *obs) -> (..., D)."""
        out: Tensor = self.encoder(self.trunk(obs))
        return out

    def loss(self, obs: Tensor, rng: Rng) -> Tensor:
        """The loss on states (..., *obs), a scalar; zero for a single state, which has no negatives."""
        rows = obs.reshape(-1, *self.spec.shape)
        views = torch.cat([self._view(rows, rng) for _ in range(2)])
        unit = functional.normalize(self.head(self.noise(self.forward(views))), dim=-1)  # (2B, P)
        similarity = unit @ unit.mT / self.temperature
        similarity = similarity.masked_fill(torch.eye(len(unit), dtype=torch.bool, device=unit.device), -torch.inf)
        positive = torch.arange(len(unit), device=unit.device).roll(len(rows))
        return functional.cross_entropy(similarity, positive)

    def _view(self, rows: Tensor, rng: Rng) -> Tensor:
        if self.spec.kind == "pixels":
            assert isinstance(rng, Generator)  # images are never computed under vmap
            return random_shift(rows, SHIFT, rng)
        low, high = AMPLITUDE
        scale = uniform((len(rows), 1), rng)
        return rows * (low + (high - low) * scale).to(rows)


def random_shift(images: Tensor, max_shift: int, rng: Generator) -> Tensor:
    """Images (B, C, H, W), each shifted by up to `max_shift` pixels in height and in width, edges repeated."""
    count, _, height, width = images.shape
    padded = functional.pad(images, (max_shift,) * 4, mode="replicate")
    shifts = torch.randint(2 * max_shift + 1, (2, count, 1), generator=rng, device=rng.device).to(images.device)
    down = torch.arange(height, device=images.device) + shifts[0]  # (B, H)
    across = torch.arange(width, device=images.device) + shifts[1]  # (B, W)
    image = torch.arange(count, device=images.device)[:, None, None]
    # Advanced indices on both sides of a slice put its axis last: (B, H, W, C).
    return padded[image, :, down[:, :, None], across[:, None, :]].movedim(-1, 1)
