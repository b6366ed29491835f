"""Intrinsic rewards, one file each."""

from intrigue.rewards.registry import REWARDS, register_reward

__all__ = ["REWARDS", "register_reward"]
