"""Rewards for the tests of composition: one with parts and order, and two that ask for skills of different kinds."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from intrigue.fields import FiniteFloat, PositiveInt
from intrigue.rewards.base import IntrinsicReward
from intrigue.rewards.registry import register_reward
from intrigue.skills import SkillSpec


@dataclass(frozen=True)
class PartedConfig:
    """Settings of the parted reward."""

    power: FiniteFloat = 1.0  # of the length
    sizes: tuple[int, ...] = ()  # not used; shows that tuples are read

    def problems(self, num_envs: int) -> list[str]:
        """A rule of its own."""
        return ["power 13 is unlucky."] if self.power == 13 else []


@register_reward("parted", config=PartedConfig)
class Parted(IntrinsicReward):
    """Length of the observation's change to a power; remembers the sum of the lengths it is handed back."""

    needs_order = True

    def __init__(self, cfg, spaces):
        super().__init__(cfg, spaces)
        self.power = cfg.power
        self.register_buffer("walked", torch.zeros(()))

    @classmethod
    def refusal(cls, cfg, spaces):
        return "it measures lengths of vectors; use rnd on pixels." if spaces.obs.kind == "pixels" else None

    def score(self, batch):
        return self.score_parts(batch)[0]

    def score_parts(self, batch):
        length = (batch.next_obs - batch.obs).norm(dim=-1)
        return length**self.power, {"length": length}

    def observe(self, batch, parts):
        assert set(parts) == {"length"}, "a part gets back its own parts and no other's"
        self.walked += parts["length"].sum()


@dataclass(frozen=True)
class SkilledConfig:
    """Settings of the skilled rewards."""

    width: PositiveInt = 2  # of the skill


@register_reward("skilled-twin", config=SkilledConfig, defaults={"width": 3})
@register_reward("skilled", config=SkilledConfig)
class Skilled(IntrinsicReward):
    """The mean of the skill, less a half."""

    signed = True

    def __init__(self, cfg, spaces):
        super().__init__(cfg, spaces)

    @classmethod
    def skills(cls, cfg):
        return SkillSpec("uniform", cfg.width, every=5)

    def score(self, batch):
        return batch.skill.mean(-1) - 0.5
