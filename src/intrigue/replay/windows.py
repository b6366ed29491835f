"""n steps from each drawn transition, as a batch.

steps    (n, B): row j is the j-th transition of the window; after the first that ends an episode, or before one
         that follows another skill, rows are not valid
tuple    (1, B): first state and action, the last state reached, Σ γ^j r_j; `discount` (1, B) is γ to the number of
         steps taken, to be used with what comes after
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from intrigue.replay.ring import RowReader
from intrigue.types import Extras, Transitions

FIELDS = ("action", "reward", "terminated", "truncated", "valid", "skill")


def as_steps(ring: RowReader, start: Tensor, steps: int, stack: int) -> Transitions:
    """Every transition of the windows, (n, B, ...)."""
    rows, found = _windows(ring, start, steps)
    fields = {name: torch.stack([each[name] for each in found]) for name in FIELDS}
    return Transitions(
        obs=ring.observations(torch.stack(rows), stack) if stack else torch.stack([each["frame"] for each in found]),
        next_obs=ring.observations(torch.stack(rows) + torch.stack([each["ahead"] for each in found]), stack),
        **fields,
    )


def as_tuples(ring: RowReader, start: Tensor, steps: int, stack: int, discount: float) -> tuple[Transitions, Extras]:
    """The windows as single transitions, (1, B, ...), and the discount of what follows them."""
    rows, found = _windows(ring, start, steps)
    first, last = found[0], found[-1]  # those that do not count repeat the last one that does
    reward, factor = first["reward"] * first["valid"], discount ** first["valid"].float()
    for power, each in enumerate(found[1:], 1):
        reward = reward + discount**power * each["reward"] * each["valid"]
        factor = factor * discount ** each["valid"].float()
    batch = Transitions(
        obs=ring.observations(rows[0], stack) if stack else first["frame"],
        action=first["action"],
        reward=reward,
        terminated=last["terminated"],
        truncated=last["truncated"],
        next_obs=ring.observations(rows[-1] + last["ahead"], stack),
        valid=first["valid"],
        skill=first["skill"],
    )
    lifted = {each.name: getattr(batch, each.name).unsqueeze(0) for each in dataclasses.fields(batch)}
    return Transitions(**lifted), {"discount": factor.unsqueeze(0)}


def _windows(ring: RowReader, start: Tensor, steps: int) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """The n rows (B,) of the windows that begin in rows (B,), and their fields, `valid` where they count.

    Those that do not count repeat the one before.
    """
    rows, found = [start], [ring.whole(start)]
    for _ in range(steps - 1):
        here = found[-1]
        going = here["valid"] & ~(here["terminated"] | here["truncated"])
        there = torch.where(going, rows[-1] + here["ahead"], rows[-1])
        seen = ring.whole(there)
        counts = going & (seen["skill"] == here["skill"]).all(-1)
        rows.append(torch.where(counts, there, rows[-1]))
        kept = {name: torch.where(_like(counts, field), field, here[name]) for name, field in seen.items()}
        found.append({**kept, "valid": counts})
    return rows, found


def _like(flags: Tensor, field: Tensor) -> Tensor:
    return flags.view(*flags.shape, *(1,) * (field.dim() - flags.dim()))
