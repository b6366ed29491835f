"""An agent that takes no skills, for the refusals of rewards that ask for them."""

from __future__ import annotations

from typing import final

from intrigue.agents.base import Agent
from intrigue.agents.random import RandomConfig, random_actions
from intrigue.agents.registry import register_agent
from intrigue.types import Acted


@register_agent("deaf")
@final
class Deaf(Agent):
    """Acts uniformly; says nothing of skills, so it does not take them."""

    def __init__(self, cfg, spaces, streams):
        super().__init__(cfg, spaces, streams)
        self.spec, self.rollout_steps = spaces.action, RandomConfig().rollout_steps

    def act(self, obs, skill, *, explore, rng):
        return Acted(random_actions(self.spec, obs.shape[0], rng), {})

    def update(self, batch, streams, extras, *, rng, step):
        return {}

    def train_state(self):
        return {}

    def load_train_state(self, state):
        pass
