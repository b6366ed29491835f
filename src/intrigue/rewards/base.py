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
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import torch
from torch import Tensor, nn

from intrigue.nn.feature_noise import FeatureNoise
from intrigue.rng import Rng
from intrigue.skills import SkillSpec
from intrigue.spaces import Spaces
from intrigue.types import Components, Transitions

if TYPE_CHECKING:
    from intrigue.nn.encoders import StateFeatures

SkillRule: TypeAlias = Literal["drawn", "middle", "tried", "regressed"]


@dataclass(frozen=True, slots=True)
class Traits:
    """How a reward may be computed. The defaults are right for any reward; other values make one faster."""

    inputs: frozenset[str] = frozenset({"obs", "next_obs"})
    """Which observations are read; the others are not normalised, and are handed over empty."""

    vmappable: bool = False
    """Encodings, `score`, `loss` and `observe` never synchronise with the host and may be computed for several seeds at
    once by vmap: fixed shapes, state in buffers that are changed in place, random numbers from `intrigue.rng.uniform`
    and `normal`. Never true of an instance that sees pixels."""

    cuda_graph_safe: bool = False
    """`loss` never synchronises with the host and keeps its shapes, so that it can be captured in a CUDA graph."""


class IntrinsicReward(nn.Module, abc.ABC):
    """A bonus for what is new. Final classes take `(cfg, spaces)`."""

    needs_order: bool = False
    """True: `score` and `observe` take whole rollouts in time order; such a reward refuses shuffled replay.

    Most classes write `needs_order = True`; one whose settings decide sets it on the instance. So with `signed`."""

    signed: bool = False
    """True: the bonus may be negative (log-ratios, projections)."""

    follows_steps: bool = False
    """True: the bonus depends on how far the run is, which `set_step` says."""

    traits: Traits = Traits()
    """How it may be computed; one whose settings decide replaces them on the instance."""

    finetune_skill: ClassVar[SkillRule] = "drawn"
    """Which skill the policy follows in URLB's second phase (`intrigue.training.skill_selection`)."""

    finetune_copies: ClassVar[tuple[str, ...]] = ()
    """How the names of this reward's own weights begin that its second phase needs as they were trained."""

    finetune_copies_critic: ClassVar[bool] = False
    """Whether the second phase begins with the whole critic, not only with its trunk."""

    @abc.abstractmethod
    def __init__(self, cfg: Any, spaces: Spaces) -> None:
        super().__init__()
        self.noise = FeatureNoise()
        if spaces.obs.kind == "pixels":
            # Images that occur twice are encoded once, and which ones do the host has to know (`encode_pair`).
            self.traits = replace(self.traits, vmappable=False)

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
    def frozen_encoder(self) -> StateFeatures | None:
        """An encoder that never learns, if score, loss and observe look at states through nothing else.

        They are then given its encodings (`types.Encoded`), made once for all of them, and no observations.
        """
        return None

    @abc.abstractmethod
    def score(self, batch: Transitions) -> Tensor:
        """Raw bonus of each transition, (T, N). Called without gradient; must not change anything."""

    def score_parts(self, batch: Transitions) -> tuple[Tensor, Components]:
        """The bonus and what it was made of, each (T, N); a reward of one part has no parts."""
        return self.score(batch), {}

    def loss(self, batch: Transitions, rng: Rng) -> Tensor:
        """What the reward's models minimise on rows (1, B) in any order, a scalar. Zero where nothing is learned."""
        return torch.zeros((), device=batch.reward.device)

    def observe(self, batch: Transitions, parts: Components) -> None:
        """Let the batch into memories and counts; called once per batch, after learning, with what was scored."""
        return

    def set_step(self, step: int) -> None:
        """The agent has taken so many steps; called before a batch from replay, whose rows do not count steps."""
        return

    def task_from(self, batch: Transitions) -> Tensor:
        """The skill (K,) that the batch's own rewards ask for, where `finetune_skill` is "regressed"."""
        raise NotImplementedError(f"{type(self).__name__} does not regress tasks")
