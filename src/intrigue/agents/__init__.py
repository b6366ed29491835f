"""Learners, one file each."""

from intrigue.agents.registry import AGENTS, register_agent

__all__ = ["AGENTS", "register_agent"]
