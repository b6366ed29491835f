"""Batches and results that the parts of a run exchange. Time first, environments second: every batch is (T, N, ...).

A minibatch without time order is (1, B, ...). Nothing here is ever edited in place; a changed batch is a new one.
`check_shapes` and `check_finite` reject a wrong batch before anything learns from it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from intrigue.errors import NonFiniteError
from intrigue.spaces import Spaces

Metrics: TypeAlias = "dict[str, float]"
Components: TypeAlias = "Mapping[str, Tensor]"
"""Components of a bonus, each (T, N): logged by name, and passed back to the reward when it observes the batch."""
Extras: TypeAlias = "Mapping[str, Tensor]"
"""What an agent stored while acting, each (T, N, ...), and what follows: `last_obs` (N, *obs), `last_skill` (N, K)."""


@dataclass(frozen=True, slots=True)
class Transitions:
    """What the environments returned, unchanged."""

    obs: Tensor  # (T, N, *obs)
    action: Tensor  # (T, N, *action)
    reward: Tensor  # (T, N)  extrinsic
    terminated: Tensor  # (T, N)  bool: no future exists
    truncated: Tensor  # (T, N)  bool: a future exists, we stopped looking
    next_obs: Tensor  # (T, N, *obs)  the true successor, never the frame after a reset
    valid: Tensor  # (T, N)  bool: False only for the reset rows of vector environments that reset one step late
    skill: Tensor  # (T, N, K)  float: what the policy was asked to do; K = 0 where the reward knows no skills

    @property
    def ended(self) -> Tensor:
        """Where an episode ends, for either reason. (T, N)"""
        return self.terminated | self.truncated

    def replace(self, **changes: Tensor) -> Transitions:
        """A new batch with some fields exchanged."""
        return dataclasses.replace(self, **changes)

    def tensors(self) -> tuple[Tensor, ...]:
        """All fields, in the order the class takes them."""
        return tuple(getattr(self, each.name) for each in dataclasses.fields(self))

    def rows(self, index: Tensor) -> Transitions:
        """The chosen rows of the flattened batch, as (1, B, ...); for what needs no time order."""
        return Transitions(
            **{
                each.name: getattr(self, each.name).flatten(0, 1)[index].unsqueeze(0)
                for each in dataclasses.fields(Transitions)
            }
        )


@dataclass(frozen=True, slots=True)
class Prepared(Transitions):
    """A batch as rewards see it, with the observations as they were: running moments change how equal states look."""

    raw_obs: Tensor  # (T, N, *obs)
    raw_next_obs: Tensor  # (T, N, *obs)


@dataclass(frozen=True, slots=True)
class Encoded(Prepared):
    """A prepared batch with the encodings of a network that never learns: made once, read by score and every epoch."""

    phi: Tensor  # (T, N, D)  φ(s)
    next_phi: Tensor  # (T, N, D)  φ(s')

    @classmethod
    def of(cls, batch: Prepared, phi: Tensor, next_phi: Tensor) -> Encoded:
        """The batch with these encodings in place of its observations; `raw_obs` and `raw_next_obs` stay."""
        nothing = batch.reward.new_empty(*batch.reward.shape, 0)
        held = {each.name: getattr(batch, each.name) for each in dataclasses.fields(Prepared)}
        return cls(**{**held, "obs": nothing, "next_obs": nothing}, phi=phi, next_phi=next_phi)

    def rows(self, index: Tensor) -> Encoded:
        """The chosen rows without their observations, which a loss over encodings never reads."""
        nothing = self.reward.new_empty(*self.reward.shape, 0)
        taken = {
            each.name: nothing if each.name.endswith("obs") else getattr(self, each.name)
            for each in dataclasses.fields(self)
        }
        return Encoded(**{name: values.flatten(0, 1)[index].unsqueeze(0) for name, values in taken.items()})


@dataclass(frozen=True, slots=True)
class Stream:
    """One reward signal for the learner: its value head, its discount and its episode ends go by `name`."""

    name: str  # "total", or "extrinsic" and "intrinsic"
    reward: Tensor  # (T, N)
    weight: float  # of its advantage in the policy's objective


@dataclass(frozen=True, slots=True)
class RewardStep:
    """The result of `Curiosity.step` for a batch."""

    reward: Tensor  # (T, N)  what a learner with one stream should maximise
    intrinsic: Tensor  # (T, N)  raw bonus
    streams: tuple[Stream, ...]
    metrics: Metrics


@dataclass(frozen=True, slots=True)
class Acted:
    """Actions as the environments take them, (N, *action), and what the agent needs at its update."""

    action: Tensor
    extras: Extras


@dataclass(frozen=True, slots=True)
class Episode:
    """One finished episode, in raw environment reward."""

    step: int
    env: int
    episodic_return: float
    length: int
    terminated: bool


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a run after one step of all environments; metrics only when something was learned."""

    step: int
    episodes: list[Episode]
    metrics: Metrics


def check_shapes(batch: Transitions, spaces: Spaces, skill_width: int) -> None:
    """Refuse a batch whose axes are not (T, N, ...) of these spaces, before anything learns from it."""
    lead = tuple(batch.reward.shape)
    wanted = {
        "reward": lead,
        "terminated": lead,
        "truncated": lead,
        "valid": lead,
        "obs": (*lead, *spaces.obs.shape),
        "next_obs": (*lead, *spaces.obs.shape),
        "action": (*lead, *spaces.action.shape),
        "skill": (*lead, skill_width),
    }
    wrong = [
        f"{name} is {tuple(getattr(batch, name).shape)}, expected {shape}"
        for name, shape in wanted.items()
        if tuple(getattr(batch, name).shape) != shape
    ]
    if len(lead) != 2 or wrong:
        raise ValueError(
            f"a batch must be (T, N, ...) with time first: {'; '.join(wrong) or f'reward is {lead}'}. "
            "Add the missing axis (T=1 for a single step, N=1 for a single environment)."
        )


def check_finite(name: str, values: Tensor) -> None:
    """Stop at the first NaN or infinity, naming where it stands."""
    wrong = ~torch.isfinite(values)
    if bool(wrong.any()):
        t, n = (int(i) for i in wrong.nonzero()[0][:2])
        raise NonFiniteError(
            f"{name} is not finite in {int(wrong.sum())} of {values.numel()} places, first at time {t}, "
            f"environment {n}. Nothing was learned from this batch. Look at the observations and at losses/intrinsic "
            "before it; a smaller --curiosity.learning-rate or --curiosity.obs-norm elementwise often helps."
        )
