"""What an agent asks of its replay. Knows no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Place: TypeAlias = Literal["auto", "device", "host"]


@dataclass(frozen=True)
class ReplayPlan:
    """How much is kept and where, what is drawn from it and when."""

    capacity: int
    """Transitions kept, at least; a little room is added for what ends episodes and for forgetting in chunks."""
    batch: int
    """Windows drawn for one update."""
    learning_starts: int
    """Agent steps before the first update, taken at random."""
    train_every: int
    """Agent steps between two updates; of several environments as many updates follow one step as fall due with it."""
    discount: float
    """γ, for windows that are summed here."""
    steps: int = 1
    """n: transitions in a window."""
    window: Literal["steps", "tuple"] = "steps"
    """`steps`: (n, B), every transition by itself, so that each has its own bonus. `tuple`: (1, B), from the first
    state to the one n steps later, rewards summed, one bonus for the whole of it (URLB)."""
    order: Literal["transitions", "episodes"] = "transitions"
    """Uniform over transitions, or over finished episodes and then within one (URLB)."""
    priority: float = 0.0
    """α of prioritised replay; 0 draws uniformly."""
    importance: float = 0.4
    """β at the start, on its way to 1."""
    importance_steps: int = 1
    """Agent steps until β is 1."""
    place: Place = "auto"
    """Where it is kept: with the networks, in host memory, or with the networks where that leaves room."""


def updates_due(step: int, taken: int, plan: ReplayPlan) -> int:
    """How many updates follow the `taken` agent steps that led to `step`; none before learning starts."""
    if step <= plan.learning_starts:
        return 0
    before = max(step - taken, plan.learning_starts)
    return step // plan.train_every - before // plan.train_every
