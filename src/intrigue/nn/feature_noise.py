"""Gaussian noise on a reward's encodings: the robustness experiment of the paper, for any reward.

    z ← z + σ·u·ε,    ε ~ N(0, 1) independent per entry,    u = 1 (absolute) or the encodings' own spread (relative)

Noise is added where an encoding is computed, so inputs and targets of a dynamics model get independent draws, and
neighbours are searched among noisy states; the policy's observations are unchanged. The members of an ensemble share
one draw (noise of the environment) or have their own (noise of each model). `Curiosity` turns it on with a random
stream of its own, whose state is then the only one that scoring changes.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Generator, Tensor, nn

Units = Literal["absolute", "relative"]
Draw = Literal["shared", "member"]


class FeatureNoise(nn.Module):
    """Adds nothing until `attach` sets σ and a stream."""

    def __init__(self) -> None:
        super().__init__()
        self.sigma = 0.0
        self.units: Units = "absolute"
        self.draw: Draw = "shared"
        self.rng: Generator | None = None
        self.spread = torch.zeros(())
        """Standard deviation of the last encodings before noise, the scale to compare σ with."""

    def attach(self, sigma: float, units: Units, draw: Draw, rng: Generator) -> None:
        """Add noise from now on."""
        self.sigma, self.units, self.draw, self.rng = sigma, units, draw, rng

    def forward(self, encoded: Tensor) -> Tensor:
        """Encodings of any shape with noise; the same tensor object when σ is 0."""
        return encoded if self.sigma == 0 else encoded + self._noise(encoded, encoded.shape)

    def for_members(self, encoded: Tensor, members: int) -> Tensor:
        """Encodings (..., D) as inputs of K members, (..., K, D): one draw shared by all, or one each."""
        shape = (*encoded.shape[:-1], members, encoded.shape[-1])
        if self.sigma == 0 or self.draw == "shared":
            return self.forward(encoded).unsqueeze(-2).expand(shape)
        return encoded.unsqueeze(-2) + self._noise(encoded, shape)

    def _noise(self, encoded: Tensor, shape: tuple[int, ...]) -> Tensor:
        assert self.rng is not None
        # One scale for all entries: noise relative to each would leave entries that rarely vary unchanged.
        self.spread = encoded.detach().std(unbiased=False)
        unit = self.spread if self.units == "relative" else 1.0
        drawn = torch.randn(shape, generator=self.rng, device=self.rng.device, dtype=encoded.dtype)
        return self.sigma * unit * drawn
