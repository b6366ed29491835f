"""Which loop trains which parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from intrigue.training.parts import Parts
from intrigue.training.replay import ReplayParts, replay
from intrigue.training.rollout import rollout
from intrigue.types import Progress

AnyParts: TypeAlias = Parts | ReplayParts


def loop(parts: AnyParts, warmup_steps: int) -> Iterator[Progress]:
    """Train for ever, from rollouts or from replay, as the agent learns."""
    return replay(parts, warmup_steps) if isinstance(parts, ReplayParts) else rollout(parts, warmup_steps)
