"""States as integers: equal ones by their bytes, similar ones by the signs of random projections.

    exact_keys   Σ_i w_i · mix(word_i)  mod 2⁶⁴     w: fixed odd random numbers;  mix: MurmurHash3's 64-bit finaliser
    SimHash      Σ_i 2^i · [ (A x)_i > 0 ]          A: random normal (Charikar 2002; Tang et al. 2017)

Words must be mixed first: numbers like 1.0 are multiples of large powers of two, whose products keep few bits. Two
states at angle θ share each bit of a SimHash code with probability 1 − θ/π.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn
from torch.nn import functional

# Codes are non-negative int64 numbers.
MAX_BITS = 62
# Arbitrary but fixed: keys stored before a resume are compared with keys computed after it.
WEIGHT_SEED = 0
# Austin Appleby's constants, as signed numbers.
MIXERS = (0xFF51AFD7ED558CCD - 2**64, 0xC4CEB9FE1A85EC53 - 2**64)


def exact_keys(states: Tensor) -> Tensor:
    """One int64 per state (T, N, *obs) -> (T, N): equal for bitwise equal states, else almost surely different."""
    # Adding 0 maps −0 to 0, which compares equal to it.
    plain = states + 0.0 if states.is_floating_point() else states
    data = plain.flatten(2).contiguous().view(torch.uint8)
    words = functional.pad(data, (0, -data.shape[-1] % 8)).view(torch.int64)  # (T, N, W)
    for factor in MIXERS:
        words = (words ^ _shift_right(words)) * factor  # overflow wraps, which is the modulus
    return ((words ^ _shift_right(words)) * _weights(words.shape[-1]).to(words.device)).sum(-1)


class SimHash(nn.Module):
    """Random projections whose signs are the bits of a code; nearby directions share most of them."""

    projection: Tensor
    powers: Tensor

    def __init__(self, width: int, bits: int) -> None:
        super().__init__()
        self.register_buffer("projection", torch.randn(width, bits))
        self.register_buffer("powers", 2 ** torch.arange(bits), persistent=False)

    def forward(self, states: Tensor) -> Tensor:
        """Projections of states (T, N, *obs) -> (T, N, bits)."""
        return states.flatten(2) @ self.projection

    def codes(self, projected: Tensor) -> Tensor:
        """Projections (..., bits) as integers (...,)."""
        return ((projected > 0) * self.powers).sum(-1)


def _shift_right(words: Tensor) -> Tensor:
    """Logical right shift by 33; torch's shift is arithmetic."""
    return (words >> 33) & (2**31 - 1)


@functools.lru_cache(maxsize=8)
def _weights(count: int) -> Tensor:
    rng = torch.Generator().manual_seed(WEIGHT_SEED)
    return torch.randint(-(2**62), 2**62, (count,), generator=rng) * 2 + 1
