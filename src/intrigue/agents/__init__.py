"""Learners, one file each, and their settings by short name: `intrigue.agents.PPO(clip=0.2)`."""

from typing import Any

from intrigue.agents.registry import AGENTS, register_agent

__all__ = ["AGENTS", "register_agent"]


def __getattr__(name: str) -> Any:
    return AGENTS.settings_class(name)


def __dir__() -> list[str]:
    return sorted([*__all__, *AGENTS.settings_names()])
