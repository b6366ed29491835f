"""Where intrinsic rewards are filed by name. Knows no torch: names and fields can be read without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intrigue.registry import Registry

if TYPE_CHECKING:
    from intrigue.rewards.base import IntrinsicReward

REWARDS: Registry[IntrinsicReward] = Registry("reward", "intrigue.rewards", short_names={"NuclearNormConfig": "NNM"})
register_reward = REWARDS.register
