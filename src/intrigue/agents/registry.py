"""Where agents are filed by name. Knows no torch: names and fields can be read without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intrigue.registry import Registry

if TYPE_CHECKING:
    from intrigue.agents.base import Agent

AGENTS: Registry[Agent] = Registry("agent", "intrigue.agents")
register_agent = AGENTS.register
