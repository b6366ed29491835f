"""Which loop trains which parts, alone or several seeds of one setting together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from intrigue.config.run import RunConfig
from intrigue.errors import RunError
from intrigue.training.memory_budget import free_bytes, readable
from intrigue.training.on_policy import train_on_policy
from intrigue.training.parts import Parts
from intrigue.types import Progress

if TYPE_CHECKING:
    from intrigue.training.off_policy import ReplayParts

AnyParts: TypeAlias = "Parts | ReplayParts"
Stops: TypeAlias = Callable[[int], int]
"""Given the current step, the next one at which training must synchronise (log, checkpoint, evaluation). May be called
after every step; a later call may return an earlier step, for example after SIGTERM, never a later one."""


def loop(parts: AnyParts, warmup_steps: int) -> Iterator[Progress]:
    """Train for ever, from rollouts or from replay, as the agent learns."""
    if isinstance(parts, Parts):
        return train_on_policy(parts, warmup_steps)
    from intrigue.training.off_policy import train_off_policy

    return train_off_policy(parts, warmup_steps)


def train_all(parts: Sequence[AnyParts], warmup_steps: int, stops: Stops) -> Iterator[list[Progress]]:
    """Train one or several for ever; one Progress for each of them, all at the same step, at every stop or more often.

    Several must be such that `why_not_together` gives None.

    Raises:
        RunError: one of them failed; the message names its seed where there are several.
    """
    replays = [each for each in parts if not isinstance(each, Parts)]
    reasons: dict[int, str] = {}
    if replays:
        from intrigue.training.stacked.trainer import train_stacked, why_not_stackable

        reasons = {each.streams.seed: why for each in replays if (why := why_not_stackable(each, warmup_steps))}
        if len(replays) == len(parts) and not reasons:
            return train_stacked(replays, stops)
    if len(parts) > 1:
        # `why_not_together` saw one of them; the replay of another may not have fitted beside it on the device.
        listed = "; ".join(f"seed {seed}: {reason}" for seed, reason in reasons.items())
        raise RunError(f"{listed}. Take up fewer seeds at once, with `intrigue resume` of their own folders.")
    (alone,) = parts
    return ([progress] for progress in loop(alone, warmup_steps))


def why_not_together(cfg: RunConfig, parts: AnyParts, seeds: int) -> str | None:
    """Why so many seeds of this setting cannot learn together; None if they can. `parts` are one seed's."""
    if isinstance(parts, Parts):
        return f"{cfg.agent_name!r} learns from its rollouts; only agents with a replay learn together"
    from intrigue.training.stacked.trainer import why_not_stackable

    if reason := why_not_stackable(parts, cfg.curiosity.warmup_steps):
        return reason
    need, free = parts.footprint, free_bytes(parts.footprint.device)
    # Each seed's replay is allocated by itself before it is copied into the stack of all.
    if free is not None and 2 * seeds * need.bytes > free:
        whole = readable(2 * seeds * need.bytes)
        return f"together their replays need {whole}, {need.device.type} has {readable(free)} free"
    return None
