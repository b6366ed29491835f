"""What an agent that learns from replay is, beyond an agent.

Its `update` gets windows (n, B, ...) as `intrigue.replay.windows` describes them, and in `extras` the `weight` (B,) of
each in the loss where they were drawn by priority, and the `discount` (1, B) where a window is one tuple.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from intrigue.agents.base import Agent
from intrigue.replay.plan import ReplayPlan
from intrigue.spaces import Spaces


class ReplayAgent(Agent):
    """A policy that learns from what is drawn again. Its class body says `feed = "replay"`."""

    plan: ReplayPlan
    errors: Tensor | None = None
    """How wrong the last update found each window, (B,), before it learned; None where priorities are not used."""

    @classmethod
    def plan_of(cls, cfg: Any) -> ReplayPlan | None:
        """The plan of an agent with these settings, where it can be said before the agent is built."""
        del cfg
        return None

    @classmethod
    def refusal(cls, cfg: Any, spaces: Spaces) -> str | None:
        """Why this agent cannot act in these spaces, and what to use instead; None if it can."""
        del cfg, spaces
        return None
