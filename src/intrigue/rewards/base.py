"""What an intrinsic reward is.

A reward splits into three, so that nothing both computes and changes:

    score    raw novelty of each transition, (T, N); pure: no gradient, no counter, no memory moves
    loss     what its models should minimise on a batch; differentiable
    observe  the only mutator: memories, counts, queues

`Curiosity` is the only caller and fixes the order: score with the models as they are, then learn, then observe. The
batch it hands over is prepared: observations normalised to float32, actions as network inputs (one-hot classes or
numbers), both with leading axes (T, N). Scale, coefficients and clipping are not a reward's business.

A new reward is one file: a frozen dataclass of settings, and one class under `@register_reward`.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor, nn

from intrigue.spaces import Spaces
from intrigue.types import Transitions


class IntrinsicReward(nn.Module, abc.ABC):
    """A bonus for what is new. Final classes take `(cfg, spaces)`."""

    needs_order: ClassVar[bool] = False
    """True: the batch must be whole rollouts in time order; such a reward refuses shuffled replay."""

    @abc.abstractmethod
    def __init__(self, cfg: Any, spaces: Spaces) -> None:
        super().__init__()

    @abc.abstractmethod
    def score(self, batch: Transitions) -> Tensor:
        """Raw bonus of each transition, (T, N). Called without gradient; must not change anything."""

    def loss(self, batch: Transitions, rng: Generator) -> Tensor:
        """What the reward's models minimise, a scalar. Zero where there is nothing to learn."""
        return torch.zeros((), device=batch.reward.device)

    def observe(self, batch: Transitions) -> None:
        """Let the batch into memories and counts; called once per batch, after learning."""
        return
