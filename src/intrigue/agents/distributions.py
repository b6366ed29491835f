"""Action distributions that sample with a given generator (torch.distributions accepts none).

Continuous actions are Gaussian in units where the bounds are −1 and 1. The sample is kept for the likelihood ratio; the
environment's action is the sample scaled to the bounds and clipped.
"""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor, nn

from intrigue.nn.networks import init_orthogonal
from intrigue.spaces import ActionSpec


class ActionHead(nn.Module):
    """The last layer of a policy and the distribution it parametrises."""

    low: Tensor
    high: Tensor

    def __init__(self, spec: ActionSpec, width: int, gain: float, log_std: float) -> None:
        super().__init__()
        self.spec = spec
        self.layer = nn.Linear(width, spec.width)
        init_orthogonal(self.layer, gain)
        continuous = spec.kind == "continuous"
        self.log_std = nn.Parameter(torch.full((spec.width,), log_std)) if continuous else None
        self.register_buffer("low", torch.tensor(spec.low), persistent=False)
        self.register_buffer("high", torch.tensor(spec.high), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """(B, width) -> (B, parameters): log-probabilities of the classes of each part in turn, or means."""
        out: Tensor = self.layer(features)
        if self.spec.kind == "continuous":
            return out
        if self.spec.kind == "discrete":
            return out.log_softmax(-1)
        return torch.cat([part.log_softmax(-1) for part in out.split(self.spec.sizes, -1)], -1)

    def sample(self, parameters: Tensor, *, explore: bool, rng: Generator) -> Tensor:
        """One sample per row; the most likely one when not exploring. (B,) for discrete, else (B, parts)."""
        if self.log_std is not None:
            noise = torch.randn(parameters.shape, generator=rng, device=parameters.device) if explore else 0.0
            return parameters + self.log_std.exp() * noise
        if self.spec.kind == "discrete":
            return torch.multinomial(parameters.exp(), 1, generator=rng)[:, 0] if explore else parameters.argmax(-1)
        parts = []
        for part in parameters.split(self.spec.sizes, -1):
            if explore:
                parts.append(torch.multinomial(part.exp(), 1, generator=rng).squeeze(-1))
            else:
                parts.append(part.argmax(-1))
        return torch.stack(parts, -1)

    def action(self, sample: Tensor) -> Tensor:
        """The action for the environment, inside the bounds."""
        if self.spec.kind != "continuous":
            return sample
        bounded = torch.isfinite(self.low) & torch.isfinite(self.high)
        center = torch.where(bounded, (self.low + self.high) / 2, 0.0)
        half_range = torch.where(bounded, (self.high - self.low) / 2, 1.0)
        return torch.minimum(torch.maximum(center + half_range * sample, self.low), self.high)

    def log_prob(self, parameters: Tensor, sample: Tensor) -> Tensor:
        """Log-likelihood of samples, (B,)."""
        if self.log_std is not None:
            z = (sample - parameters) / self.log_std.exp()
            return (-0.5 * z.square() - self.log_std - 0.5 * math.log(2 * math.pi)).sum(-1)
        if self.spec.kind == "discrete":
            return parameters.gather(-1, sample.unsqueeze(-1)).squeeze(-1)
        parts = parameters.split(self.spec.sizes, -1)
        picked = [part.gather(-1, sample[..., i : i + 1]).squeeze(-1) for i, part in enumerate(parts)]
        return torch.stack(picked).sum(0)

    def entropy(self, parameters: Tensor) -> Tensor:
        """Entropy of each row's distribution, (B,)."""
        if self.log_std is not None:
            return (self.log_std + 0.5 * math.log(2 * math.pi * math.e)).sum().expand(parameters.shape[0])
        parts = parameters.split(self.spec.sizes, -1)
        return torch.stack([-(part.exp() * part).sum(-1) for part in parts]).sum(0)
