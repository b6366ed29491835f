"""Types for configuration fields that carry their own limits.

clip: PositiveFloat = 0.1        # refused below or at 0, before anything is created
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True, slots=True)
class Limits:
    """A closed or half-open interval a number must lie in."""

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False

    def holds(self, value: float) -> bool:
        """Whether the value is finite and inside."""
        above = value > self.low if self.low_open else value >= self.low
        below = value < self.high if self.high_open else value <= self.high
        return math.isfinite(value) and above and below

    def __str__(self) -> str:
        parts = []
        if self.low > -math.inf:
            parts.append(f"{'>' if self.low_open else '>='} {self.low:g}")
        if self.high < math.inf:
            parts.append(f"{'<' if self.high_open else '<='} {self.high:g}")
        return " and ".join(parts) or "finite"


PositiveInt = Annotated[int, Limits(low=1)]
NonNegativeInt = Annotated[int, Limits(low=0)]
PositiveFloat = Annotated[float, Limits(low=0, low_open=True)]
NonNegativeFloat = Annotated[float, Limits(low=0)]
FiniteFloat = Annotated[float, Limits()]
Fraction = Annotated[float, Limits(low=0, high=1)]
PositiveFraction = Annotated[float, Limits(low=0, high=1, low_open=True)]
Discount = Annotated[float, Limits(low=0, high=1, high_open=True)]
