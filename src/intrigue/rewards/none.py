"""No bonus at all: the control arm.

    r(s, a, s') = 0

Differs from the paper: not in it. Cost: none.
"""

from __future__ import annotations

from typing import final

from torch import Tensor

from intrigue.registry import EmptyConfig
from intrigue.rewards.base import IntrinsicReward, Traits
from intrigue.rewards.registry import register_reward
from intrigue.spaces import Spaces
from intrigue.types import Transitions


@register_reward("none")
@final
class NoReward(IntrinsicReward):
    """Zero for every transition."""

    traits = Traits(inputs=frozenset(), vmappable=True)

    def __init__(self, cfg: EmptyConfig, spaces: Spaces) -> None:
        super().__init__(cfg, spaces)

    def score(self, batch: Transitions) -> Tensor:
        """Zeros, (T, N)."""
        return batch.reward.new_zeros(batch.reward.shape)
