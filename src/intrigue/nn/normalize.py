"""Running statistics: moments of observations, and the scale of intrinsic returns. State is buffers.

Moments merge batch by batch (Chan et al. 1979), in float64 so that long runs do not drift:

    δ = μ_b − μ,   n' = n + b,   μ' = μ + δ b/n',   M' = M + M_b + δ² n b / n',   var = M / n
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from intrigue.nn.returns import discounted_sums

# openai/baselines' RunningMeanStd starts with a count of 1e-4, mean 0 and variance 1.
PRIOR_COUNT = 1e-4
EPSILON = 1e-8
# 128 squares of bytes sum to less than 2^24, up to which float32 counts exactly.
BYTE_ROWS = 128


class Moments(NamedTuple):
    """Size, mean and variance of a sample, in float64."""

    size: Tensor
    mean: Tensor
    var: Tensor

    def merge(self, other: Moments) -> Moments:
        """The moments of the union of both samples; this one must not be empty."""
        total = self.size + other.size
        shift = other.mean - self.mean
        spread = self.var * self.size + other.var * other.size + shift.square() * self.size * other.size / total
        return Moments(total, self.mean + shift * other.size / total, spread / total)


class RunningMoments(nn.Module):
    """Mean and variance of everything observed so far, per element of `shape`."""

    count: Tensor
    mean: Tensor
    var: Tensor

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.shape = shape
        self.register_buffer("count", torch.tensor(PRIOR_COUNT, dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("var", torch.ones(shape, dtype=torch.float64))

    @torch.no_grad()
    def observe(self, values: Tensor) -> None:
        """Merge a batch: any leading axes, then `shape`."""
        rows = values.reshape(-1, *self.shape)
        if rows.shape[0] == 0:
            return
        if rows.dtype == torch.uint8:
            mean, var = _byte_moments(rows)
        else:
            rows = rows.to(torch.float64)
            mean, var = rows.mean(0), rows.var(0, unbiased=False)
        self.commit(self.moments().merge(Moments(torch.full_like(self.count, rows.shape[0]), mean, var)))

    def moments(self) -> Moments:
        """What has been observed so far."""
        return Moments(self.count, self.mean, self.var)

    @torch.no_grad()
    def commit(self, moments: Moments) -> None:
        """Set moments that were merged outside, for scores that already included their batch."""
        for held, merged in zip(self.moments(), moments, strict=True):
            held.copy_(merged)

    def std(self) -> Tensor:
        """Standard deviation, never exactly zero."""
        return (self.var + EPSILON).sqrt()


def valid_moments(values: Tensor, valid: Tensor, *, unbiased: bool = False) -> Moments:
    """Moments of the valid entries, without synchronising with the host; size 0 if there are none."""
    size = valid.sum(dtype=torch.float64)
    mean = values.double().where(valid, 0).sum() / size.clamp_min(1)
    offset = (values.double() - mean).where(valid, 0)
    return Moments(size, mean, offset.square().sum() / (size - 1 if unbiased else size).clamp_min(1))


def _byte_moments(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of bytes (B, ...) over B, from sums that float32 holds exactly: faster than float64."""
    total = torch.zeros(rows.shape[1:], dtype=torch.float64, device=rows.device)
    squares = torch.zeros_like(total)
    for part in rows.split(BYTE_ROWS):
        values = part.float()
        total += values.sum(0)
        squares += values.square_().sum(0)
    mean = total / rows.shape[0]
    return mean, (squares / rows.shape[0] - mean.square()).clamp_min(0)


class ReturnScale(nn.Module):
    """Standard deviation of the discounted sum of a reward, by which bonuses are divided.

    As in large-scale curiosity and RND: R ← γR + r per environment, never reset; the running variance of R is kept; the
    mean is not subtracted. The sum runs over time, one chain per environment.
    """

    carry: Tensor

    def __init__(self, discount: float) -> None:
        super().__init__()
        self.discount = discount
        self.moments = RunningMoments()
        self.register_buffer("carry", torch.zeros(0))

    @torch.no_grad()
    def observe(self, reward: Tensor) -> None:
        """Update the running scale with raw rewards (T, N)."""
        if self.carry.shape != reward.shape[1:]:
            self.carry = reward.new_zeros(reward.shape[1])
        sums = discounted_sums(reward, self.carry, self.discount)
        self.carry = sums[-1].clone()
        self.moments.observe(sums)

    def scale(self) -> Tensor:
        """The number rewards are divided by, (), float32."""
        return self.moments.std().float()


class ValueScale(nn.Module):
    """Standard deviation of the raw reward itself, for minibatches without time order."""

    def __init__(self) -> None:
        super().__init__()
        self.moments = RunningMoments()

    @torch.no_grad()
    def observe(self, reward: Tensor, valid: Tensor | None = None) -> None:
        """Update the running scale with the valid raw rewards of a batch of any shape."""
        counted = torch.ones_like(reward, dtype=torch.bool) if valid is None else valid
        self.moments.commit(self.moments.moments().merge(valid_moments(reward, counted)))

    def scale(self) -> Tensor:
        """The number rewards are divided by, (), float32."""
        return self.moments.std().float()
