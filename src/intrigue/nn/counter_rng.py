"""Random numbers that hang on a seed and a counter alone: what a pure score may use.

    number i of draw c  =  m(i ⊕ m(c ⊕ m(seed)))  in [0, 2³²),      m: the finaliser of MurmurHash3 (Appleby 2011)

Scoring twice gives the same numbers, because only `advance` moves the counter. Seed and counter are buffers, so that a
resumed run draws what it would have drawn; the numbers are the same on every device, and drawing never waits for one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

MASK = (1 << 32) - 1


class CounterRng(nn.Module):
    """A stream of draws; the seed comes from torch's generator at construction."""

    seed: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seed", torch.randint(MASK, ()))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def uniform(self, size: int) -> Tensor:
        """(size,) numbers of this draw, strictly between 0 and 1, in float64."""
        index = torch.arange(size, device=self.seed.device)
        return (_mixed(index ^ _mixed(self.count ^ _mixed(self.seed))).double() + 0.5) / (MASK + 1)

    def normal(self, size: int) -> Tensor:
        """(size,) numbers of this draw, normally distributed, in float64."""
        return torch.erfinv(2 * self.uniform(size) - 1) * math.sqrt(2)

    @torch.no_grad()
    def advance(self) -> None:
        """Go on to the next draw."""
        self.count += 1


def _mixed(bits: Tensor) -> Tensor:
    """A permutation of 32-bit numbers in which every bit reaches every other; products may wrap."""
    bits = ((bits ^ (bits >> 16)) * 0x85EBCA6B) & MASK
    bits = ((bits ^ (bits >> 13)) * 0xC2B2AE35) & MASK
    return bits ^ (bits >> 16)
