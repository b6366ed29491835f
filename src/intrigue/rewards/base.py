"""What an intrinsic reward is.

A reward splits into three, so that nothing both computes and changes:

    score    raw novelty of each transition, (T, N); pure: no gradient, no counter, no memory moves (feature noise, when
             it is on, draws from its own stream)
    loss     what its models should minimise on a batch; differentiable
    observe  the only mutator: memories, counts, queues, running statistics

`Curiosity` is the only caller and fixes the order: score with the models as they are, then learn, then observe. The
batch it hands over is prepared: observations normalised to float32, actions as network inputs (one-hot classes or
numbers), both with leading axes (T, N). Scale, coefficients and clipping are not a reward's business.

A reward of several parts gives them by name from `score_parts`; they are logged, and come back to `observe`. Every
encoding a reward makes goes once through `self.noise`, so that any reward can be tested under disturbance.

A new reward is one file: a frozen dataclass of settings, and one class under `@register_reward`.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from intrigue.nn.feature_noise import FeatureNoise
from intrigue.rng import Rng
from intrigue.skills import SkillSpec
from intrigue.spaces import Spaces
from intrigue.types import Parts, Transitions

if TYPE_CHECKING:
    from intrigue.nn.encoders import StateFeatures


class IntrinsicReward(nn.Module, abc.ABC):
    """A bonus for what is new. Final classes take `(cfg, spaces)`."""

    needs_order: bool = False
    """True: `score` and `observe` take whole rollouts in time order; such a reward refuses shuffled replay.

    Most classes write `needs_order = True`; one whose settings decide sets it on the instance. So with `signed`."""

    signed: bool = False
    """True: the bonus may be negative (log-ratios, projections)."""

    capturable: bool = False
    """True: `loss` never waits for the device and keeps its shapes, so that it can be captured in a CUDA graph."""

    together: bool = False
    """True: encodings, `score`, `loss` and `observe` never wait for the device and may be computed for several seeds at
    once: fixed shapes, state in buffers that are changed in place, draws through `intrigue.rng.uniform` and `normal`.

    Never true of an instance that sees pixels; one whose settings decide says so itself."""

    reads: frozenset[str] = frozenset({"obs", "next_obs"})
    """Which observations are looked at; the others are not normalised, and are handed over empty."""

    @abc.abstractmethod
    def __init__(self, cfg: Any, spaces: Spaces) -> None:
        super().__init__()
        self.noise = FeatureNoise()
        # Pictures that come twice are encoded once, and the host has to know which (`features.StateFeatures.pair`).
        self.together = type(self).together and spaces.obs.kind != "pixels"

    @classmethod
    def refusal(cls, cfg: Any, spaces: Spaces) -> str | None:
        """Why this reward cannot serve these spaces with these settings, and what to use instead; None if it can."""
        del cfg, spaces
        return None

    @classmethod
    def skills(cls, cfg: Any) -> SkillSpec | None:
        """The skills a policy must be asked to follow under this reward; None for most rewards."""
        del cfg
        return None

    @property
    def frozen(self) -> StateFeatures | None:
        """An encoder that never learns, if score, loss and observe look at states through nothing else.

        They are then given its encodings (`types.Encoded`), made once for all of them, and no observations.
        """
        return None

    @abc.abstractmethod
    def score(self, batch: Transitions) -> Tensor:
        """Raw bonus of each transition, (T, N). Called without gradient; must not change anything."""

    def score_parts(self, batch: Transitions) -> tuple[Tensor, Parts]:
        """The bonus and what it was made of, each (T, N); a reward of one part has no parts."""
        return self.score(batch), {}

    def loss(self, batch: Transitions, rng: Rng) -> Tensor:
        """What the reward's models minimise on rows (1, B) in any order, a scalar. Zero where nothing is learned."""
        return torch.zeros((), device=batch.reward.device)

    def observe(self, batch: Transitions, parts: Parts) -> None:
        """Let the batch into memories and counts; called once per batch, after learning, with what was scored."""
        return
