"""Random bonus: the control that asks whether any noise would do.

    r(s, a, s') = u,    u ~ Uniform(0, 1) independent per transition

    u: `draws`, from a stream of the reward's own that a resumed run goes on with.

The same scale and shape as a bonus, and no information: what an agent does better under a curiosity than under this
is owed to what the curiosity measures. `none` is the control without any learning signal.

Differs from the paper: not in it, and there is no code. Cost: none.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from intrigue.nn.counter_rng import CounterRng
from intrigue.registry import EmptyConfig
from intrigue.rewards.base import IntrinsicReward, Traits
from intrigue.rewards.registry import register_reward
from intrigue.spaces import Spaces
from intrigue.types import Components, Transitions


@register_reward("random")
@final
class RandomReward(IntrinsicReward):
    """A number between 0 and 1 for every transition, whatever it is."""

    traits = Traits(inputs=frozenset())

    def __init__(self, cfg: EmptyConfig, spaces: Spaces) -> None:
        super().__init__(cfg, spaces)
        self.draws = CounterRng()

    def score(self, batch: Transitions) -> Tensor:
        """This batch's draws, (T, N); the same until `observe` goes on to the next."""
        return self.draws.uniform(batch.reward.numel()).to(torch.float32).reshape(batch.reward.shape)

    def observe(self, batch: Transitions, parts: Components) -> None:
        """Go on to the next draws."""
        self.draws.advance()
