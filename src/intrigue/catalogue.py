"""What there is, by kind: the names and one-line summaries that `intrigue list` and the Python functions give.

Knows no torch: summaries are read from the files' docstrings.
"""

from __future__ import annotations

from typing import Any

from intrigue.agents.registry import AGENTS
from intrigue.envs.registry import ENVS
from intrigue.presets.registry import PRESETS
from intrigue.registry import Registry
from intrigue.rewards.registry import REWARDS
from intrigue.studies.registry import STUDIES

REGISTRIES: dict[str, Registry[Any]] = {
    "rewards": REWARDS,
    "agents": AGENTS,
    "envs": ENVS,
    "presets": PRESETS,
    "studies": STUDIES,
}


def catalogue(kind: str) -> dict[str, str]:
    """Names and summaries of one kind, sorted."""
    declared = REGISTRIES[kind].declarations()
    entries = {}
    for name in sorted(declared):
        defaults = declared[name].defaults
        variant = ", ".join(f"{key}={value!r}" for key, value in defaults.items())
        entries[name] = declared[name].summary + (f" With {variant}." if variant else "")
    return entries


def list_rewards() -> list[str]:
    """Names of all rewards."""
    return REWARDS.names()


def list_agents() -> list[str]:
    """Names of all agents."""
    return AGENTS.names()


def list_envs() -> list[str]:
    """Names of all environment families."""
    return ENVS.names()


def list_presets() -> list[str]:
    """Names of all presets."""
    return PRESETS.names()


def list_studies() -> list[str]:
    """Names of all studies."""
    return STUDIES.names()
