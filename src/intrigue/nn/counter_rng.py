"""Counter-based random numbers, a pure function of a seed and a counter, for use in a pure `score`.

    number i of draw c  =  m(i ⊕ m(c ⊕ m(seed)))  in [0, 2³²),      m: the finaliser of MurmurHash3 (Appleby 2011)

Scoring twice gives the same numbers, because only `advance` moves the counter. Seed and counter are buffers, so a
resumed run continues the stream. The numbers are the same on every device, and drawing never synchronises with the
host.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

MASK = (1 << 32) - 1


class CounterRng(nn.Module):
    """A stream of draws, seeded from torch's generator at construction."""

    seed: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seed", torch.randint(MASK, ()))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def uniform(self, size: int) -> Tensor:
        """(size,) numbers of this draw, strictly between 0 and 1, in float64."""
        index = torch.arange(size, device=self.seed.device)
        return (_mix(index ^ _mix(self.count ^ _mix(self.seed))).double() + 0.5) / (MASK + 1)

    def normal(self, size: int) -> Tensor:
        """(size,) numbers of this draw, normally distributed, in float64."""
        return torch.erfinv(2 * self.uniform(size) - 1) * math.sqrt(2)

    @torch.no_grad()
    def advance(self) -> None:
        """Move to the next draw."""
        self.count += 1


def _mix(bits: Tensor) -> Tensor:
    """The finaliser of MurmurHash3, a bijection of 32-bit numbers; products may wrap."""
    bits = ((bits ^ (bits >> 16)) * 0x85EBCA6B) & MASK
    bits = ((bits ^ (bits >> 13)) * 0xC2B2AE35) & MASK
    return bits ^ (bits >> 16)
