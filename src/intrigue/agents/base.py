"""What an agent is.

The reward is an argument of `update`: an agent can only learn from what it is handed, and it is handed everything at
once. Batches are immutable. A new agent is one file: a frozen dataclass of settings, and one class under
`@register_agent` that takes `(cfg, spaces, streams)`, `streams` being the names of the reward streams it will get.
Under a reward with skills `spaces.skill` is their width, and a policy that `takes_skills` is conditioned on them.

What an agent that learns from replay is, beyond an agent.

Its `update` gets windows (n, B, ...) as `intrigue.replay.windows` describes them, and in `extras` the `weight` (B,) of
each in the loss where they were drawn by priority, and the `discount` (1, B) where a window is one tuple.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from torch import Generator, Tensor, nn

from intrigue.ops.execution import Mode
from intrigue.replay.plan import ReplayPlan
from intrigue.spaces import Spaces
from intrigue.state import State
from intrigue.types import Acted, Extras, Metrics, Stream, Transitions


class Agent(nn.Module, abc.ABC):
    """A policy and how it learns."""

    feed: ClassVar[Literal["rollout", "replay"]] = "rollout"
    takes_skills: ClassVar[bool] = False
    """Whether the policy heeds the skill it is handed; rewards with skills refuse agents that do not."""
    two_streams: ClassVar[bool] = True
    """Whether it can learn from two streams at once, each with its own value."""
    rollout_steps: int
    """Steps per environment between two updates."""

    @abc.abstractmethod
    def __init__(self, cfg: Any, spaces: Spaces, streams: Sequence[str]) -> None:
        super().__init__()

    @abc.abstractmethod
    def act(self, obs: Tensor, skill: Tensor, *, explore: bool, rng: Generator) -> Acted:
        """Actions for observations (N, *obs) and skills (N, K), inside the action space's bounds; K is mostly 0."""

    def execute(self, mode: Mode) -> None:
        """How updates run from now on (`intrigue.ops.execution`); said once, on the device the agent lives on."""
        return

    def warm_up(self, obs: Tensor) -> None:
        """Look at observations (..., *obs) of the random steps before training; most agents need none."""
        return

    def settle(self) -> None:
        """Only play from now on: what is done for the sake of learning alone ends; most agents do nothing such."""
        return

    @abc.abstractmethod
    def update(
        self, batch: Transitions, streams: Sequence[Stream], extras: Extras, *, rng: Generator, step: int
    ) -> Metrics:
        """Learn from one rollout and the rewards given for it.

        `extras` is what `act` noted, and the observations and skills the next rollout begins with.
        """

    @abc.abstractmethod
    def train_state(self) -> State:
        """Networks, optimisers, statistics: all that `load_train_state` needs."""

    @abc.abstractmethod
    def load_train_state(self, state: State) -> None:
        """Put back what `train_state` gave."""


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
