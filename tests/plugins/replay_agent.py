"""An agent that learns from replay, for the refusals of rewards that follow episodes in order."""

from __future__ import annotations

from typing import final

from intrigue.agents.base import Agent
from intrigue.agents.registry import register_agent


@register_agent("replayer")
@final
class Replayer(Agent):
    """Is asked what it feeds on, and never built."""

    feed = "replay"
    takes_skills = True
