"""n steps from each drawn transition, as a batch.

steps    (n, B): row j is the j-th transition of the window; rows after one that ends an episode, and from one on that
         follows another skill, are not valid
tuple    (1, B): first state and action, last successor, Σ γ^j r_j; `discount` (1, B) is γ to the number of steps
         taken, for the value of the last successor
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
    rows, fetched = _windows(ring, start, steps)
    fields = {name: torch.stack([each[name] for each in fetched]) for name in FIELDS}
    return Transitions(
        obs=ring.observations(torch.stack(rows), stack) if stack else torch.stack([each["frame"] for each in fetched]),
        next_obs=ring.observations(torch.stack(rows) + torch.stack([each["ahead"] for each in fetched]), stack),
        **fields,
    )


def as_tuples(ring: RowReader, start: Tensor, steps: int, stack: int, discount: float) -> tuple[Transitions, Extras]:
    """The windows as single n-step transitions, (1, B, ...), and the discount of the value after them."""
    rows, fetched = _windows(ring, start, steps)
    first, last = fetched[0], fetched[-1]  # rows that are not valid repeat the last valid one
    reward, factor = first["reward"] * first["valid"], discount ** first["valid"].float()
    for power, each in enumerate(fetched[1:], 1):
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
    """The n rows (B,) of the windows that start in rows (B,), and their fields, `valid` where in the window.

    Rows outside of it repeat the one before.
    """
    rows, fetched = [start], [ring.get_all(start)]
    for _ in range(steps - 1):
        current = fetched[-1]
        continues = current["valid"] & ~(current["terminated"] | current["truncated"])
        successor = torch.where(continues, rows[-1] + current["ahead"], rows[-1])
        following = ring.get_all(successor)
        valid = continues & (following["skill"] == current["skill"]).all(-1)
        rows.append(torch.where(valid, successor, rows[-1]))
        kept = {
            name: torch.where(_expand_like(valid, field), field, current[name]) for name, field in following.items()
        }
        fetched.append({**kept, "valid": valid})
    return rows, fetched


def _expand_like(flags: Tensor, field: Tensor) -> Tensor:
    return flags.view(*flags.shape, *(1,) * (field.dim() - flags.dim()))
