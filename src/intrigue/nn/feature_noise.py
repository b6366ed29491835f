"""Gaussian noise on a reward's encodings: the disturbance of the paper's last experiment, for any reward.

    z ← z + σ·u·ε,    ε ~ N(0, 1) independent per entry,    u = 1 (absolute) or the encodings' own spread (relative)

Every encoding is disturbed where it is made, so inputs and targets of a dynamics model get independent draws, and
neighbours are searched among disturbed states; what the policy sees is untouched. An ensemble's members share one draw
(noise of the environment) or have their own (noise of each model). `Curiosity` turns it on with its own random stream,
the one thing that scoring then moves.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Generator, Tensor, nn

Units = Literal["absolute", "relative"]
Draw = Literal["shared", "member"]


class FeatureNoise(nn.Module):
    """Silent until `attach` gives it a strength and a stream."""

    def __init__(self) -> None:
        super().__init__()
        self.sigma = 0.0
        self.units: Units = "absolute"
        self.draw: Draw = "shared"
        self.rng: Generator | None = None
        self.spread = torch.zeros(())
        """Standard deviation of the encodings disturbed last, without the noise: what σ has to be read against."""

    def attach(self, sigma: float, units: Units, draw: Draw, rng: Generator) -> None:
        """Disturb from now on."""
        self.sigma, self.units, self.draw, self.rng = sigma, units, draw, rng

    def forward(self, encoded: Tensor) -> Tensor:
        """Encodings of any shape, disturbed; the very same tensor when silent."""
        return encoded if self.sigma == 0 else encoded + self._noise(encoded, encoded.shape)

    def for_members(self, encoded: Tensor, members: int) -> Tensor:
        """Encodings (..., D) as K members see them, (..., K, D): one draw for all of them, or one each."""
        shape = (*encoded.shape[:-1], members, encoded.shape[-1])
        if self.sigma == 0 or self.draw == "shared":
            return self.forward(encoded).unsqueeze(-2).expand(shape)
        return encoded.unsqueeze(-2) + self._noise(encoded, shape)

    def _noise(self, encoded: Tensor, shape: tuple[int, ...]) -> Tensor:
        assert self.rng is not None
        # One number for all that is encoded together: noise relative to each entry would spare those that rarely move.
        self.spread = encoded.detach().std(unbiased=False)
        unit = self.spread if self.units == "relative" else 1.0
        drawn = torch.randn(shape, generator=self.rng, device=self.rng.device, dtype=encoded.dtype)
        return self.sigma * unit * drawn
