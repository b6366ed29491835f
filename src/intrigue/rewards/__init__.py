"""Intrinsic rewards, one file each, and their settings by short name: `intrigue.rewards.NNM(n=5)`."""

from typing import Any

from intrigue.rewards.registry import REWARDS, register_reward

__all__ = ["REWARDS", "register_reward"]


def __getattr__(name: str) -> Any:
    return REWARDS.settings_class(name)


def __dir__() -> list[str]:
    return sorted([*__all__, *REWARDS.settings_names()])
