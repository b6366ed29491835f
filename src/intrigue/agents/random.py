"""Uniformly random actions, the baseline of every exploration figure.

    π(a | s) = 1 / |A|      (uniform in a bounded box, standard normal in an unbounded one)

Learns nothing; its update returns no metrics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor

from intrigue.agents.base import Agent
from intrigue.agents.registry import register_agent
from intrigue.fields import PositiveInt
from intrigue.spaces import ActionSpec, Spaces
from intrigue.state import State
from intrigue.types import Acted, Extras, Metrics, Stream, Transitions


@dataclass(frozen=True)
class RandomConfig:
    """Settings of the random agent."""

    rollout_steps: PositiveInt = 128  # rows between two log lines, as PPO


@register_agent("random", config=RandomConfig)
@final
class RandomAgent(Agent):
    """Acts uniformly, never learns."""

    takes_skills = True  # ignored

    def __init__(self, cfg: RandomConfig, spaces: Spaces, streams: Sequence[str]) -> None:
        super().__init__(cfg, spaces, streams)
        self.spec = spaces.action
        self.rollout_steps = cfg.rollout_steps

    def act(self, obs: Tensor, skill: Tensor, *, explore: bool, rng: Generator) -> Acted:
        """One uniform action per environment."""
        return Acted(random_actions(self.spec, obs.shape[0], rng), {})

    def update(
        self, batch: Transitions, streams: Sequence[Stream], extras: Extras, *, rng: Generator, step: int
    ) -> Metrics:
        """Nothing."""
        return {}

    def train_state(self) -> State:
        """Empty."""
        return {}

    def load_train_state(self, state: State) -> None:
        """Nothing to restore."""


def random_actions(spec: ActionSpec, count: int, rng: Generator) -> Tensor:
    """Uniform actions, (count, *action), on the generator's device."""
    if spec.kind == "continuous":
        low, high = torch.tensor(spec.low, device=rng.device), torch.tensor(spec.high, device=rng.device)
        bounded = torch.isfinite(low) & torch.isfinite(high)
        uniform = torch.rand(count, len(spec.low), generator=rng, device=rng.device)
        normal = torch.randn(count, len(spec.low), generator=rng, device=rng.device)
        inside = torch.where(bounded, low, 0) + uniform * torch.where(bounded, high - low, 1)
        return torch.where(bounded, inside, torch.minimum(torch.maximum(normal, low), high)).float()
    parts = [torch.randint(size, (count,), generator=rng, device=rng.device) for size in spec.sizes]
    return parts[0] if spec.kind == "discrete" else torch.stack(parts, -1)
