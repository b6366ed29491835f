"""What an agent asks of its replay buffer. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Place: TypeAlias = Literal["auto", "device", "host"]


@dataclass(frozen=True)
class ReplayPlan:
    """How much is stored and where, what is drawn from it and when."""

    capacity: int
    """Transitions stored, at least; a little is added for final states and because rows expire in chunks."""
    batch: int
    """Windows drawn for one update."""
    learning_starts: int
    """Random agent steps before the first update."""
    train_every: int
    """Agent steps between two updates; a step of several environments can be followed by several updates."""
    discount: float
    """γ, for windows whose rewards are summed by the buffer."""
    steps: int = 1
    """n: transitions in a window."""
    window: Literal["steps", "tuple"] = "steps"
    """`steps`: (n, B), every transition separate, each with its own bonus. `tuple`: (1, B), from the first state to the
    one n steps later, rewards summed, one bonus for the window (URLB)."""
    order: Literal["transitions", "episodes"] = "transitions"
    """Uniform over transitions, or first over finished episodes and then within one (URLB)."""
    priority: float = 0.0
    """α of prioritised replay; 0 draws uniformly."""
    importance: float = 0.4
    """Initial β, which is annealed to 1."""
    importance_steps: int = 1
    """Agent steps until β is 1."""
    place: Place = "auto"
    """Where it is stored: with the networks, in host memory, or with the networks if that leaves enough memory."""


def updates_due(step: int, taken: int, plan: ReplayPlan) -> int:
    """How many updates follow the last `taken` of `step` agent steps; none before learning starts."""
    if step <= plan.learning_starts:
        return 0
    before = max(step - taken, plan.learning_starts)
    return step // plan.train_every - before // plan.train_every
