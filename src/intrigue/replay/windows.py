"""n steps from each drawn transition, as a batch.

steps    (n, B): row j is the j-th transition of the window; after the first that ends an episode, or before one
         that follows another skill, rows are not valid
tuple    (1, B): first state and action, the last state reached, Σ γ^j r_j; `discount` (1, B) is γ to the number of
         steps taken, to be used with what comes after
"""

from __future__ import annotations

import torch
from torch import Tensor

from intrigue.replay.rows import Rows
from intrigue.types import Extras, Transitions


def window_rows(ring: Rows, start: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Rows (n, B) of the windows that begin in rows (B,), and which of them count; others repeat the one before."""
    rows, counts = [start], [ring.get("valid", start)]
    for _ in range(steps - 1):
        here = rows[-1]
        going = counts[-1] & ~(ring.get("terminated", here) | ring.get("truncated", here))
        there = torch.where(going, ring.after(here), here)
        rows.append(there)
        counts.append(going & (ring.get("skill", there) == ring.get("skill", here)).all(-1))
        rows[-1] = torch.where(counts[-1], there, here)
    return torch.stack(rows), torch.stack(counts)


def as_steps(ring: Rows, start: Tensor, steps: int, stack: int) -> Transitions:
    """Every transition of the windows, (n, B, ...)."""
    rows, counts = window_rows(ring, start, steps)
    return _batch(ring, rows, ring.after(rows), stack).replace(valid=counts)


def as_tuples(ring: Rows, start: Tensor, steps: int, stack: int, discount: float) -> tuple[Transitions, Extras]:
    """The windows as single transitions, (1, B, ...), and the discount of what follows them."""
    rows, counts = window_rows(ring, start, steps)
    power = discount ** torch.arange(steps, device=rows.device, dtype=torch.float32).unsqueeze(-1)
    reward = (power * ring.get("reward", rows) * counts).sum(0, keepdim=True)
    last = rows[-1:]  # rows that do not count repeat the last one that does
    batch = _batch(ring, rows[:1], ring.after(last), stack).replace(
        reward=reward, terminated=ring.get("terminated", last), truncated=ring.get("truncated", last)
    )
    return batch, {"discount": discount ** counts.sum(0, keepdim=True).float()}


def _batch(ring: Rows, rows: Tensor, after: Tensor, stack: int) -> Transitions:
    return Transitions(
        obs=ring.observations(rows, stack),
        action=ring.get("action", rows),
        reward=ring.get("reward", rows),
        terminated=ring.get("terminated", rows),
        truncated=ring.get("truncated", rows),
        next_obs=ring.observations(after, stack),
        valid=ring.get("valid", rows),
        skill=ring.get("skill", rows),
    )
