"""One guarded step of an optimiser, and its state as a state tree (string keys only) and back.

Optimiser steps that are skipped where the loss is not finite, without anybody looking at it.

A device is not waited for: the fused optimiser itself is told to skip the step, and how often it did is read later.

    guard = Guard(skipping(optimizer, device), device)
    guard.look(loss); optimizer.step()
    guard.tripped()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor

from intrigue.errors import NonFiniteError
from intrigue.state import State

HOW = ("foreach", "fused", "capturable", "differentiable")
"""Settings of an optimiser that say how it computes, not what: they are the run's own, whoever wrote the state."""


def descend(optimizer: torch.optim.Optimizer, loss: Tensor, refusal: str, max_grad_norm: float = 0.0) -> None:
    """One step down the loss; never on a loss that is not finite. `max_grad_norm` 0 leaves gradients as they are."""
    if not torch.isfinite(loss):
        raise NonFiniteError(refusal)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    if max_grad_norm:
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        torch.nn.utils.clip_grad_norm_(weights, max_grad_norm)
    optimizer.step()


def optimizer_state(optimizer: torch.optim.Optimizer) -> State:
    """Moments by parameter number, and the groups' settings."""
    state = optimizer.state_dict()
    # Torch hands out its live moments and takes them over on loading; a copy keeps two optimisers apart.
    copied = {
        str(index): {name: _copy(value) for name, value in moments.items()} for index, moments in state["state"].items()
    }
    groups = [{key: value for key, value in group.items() if key not in HOW} for group in state["param_groups"]]
    for group in groups:
        group["lr"] = float(group["lr"])  # a tensor where steps are captured in graphs
    return {"state": copied, "param_groups": groups}


def load_optimizer_state(optimizer: torch.optim.Optimizer, state: State) -> None:
    """Put back what `optimizer_state` gave."""
    groups: list[dict[str, Any]] = []
    rates = [group["lr"] for group in optimizer.param_groups]
    for now, group in zip(optimizer.param_groups, state["param_groups"], strict=True):
        how = {key: now[key] for key in HOW if key in now}
        groups.append({**{key: tuple(value) if key == "betas" else value for key, value in group.items()}, **how})
    moments = {
        int(index): {name: _copy(value) for name, value in each.items()} for index, each in state["state"].items()
    }
    optimizer.load_state_dict({"state": moments, "param_groups": groups})
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if isinstance(rate, Tensor):
            group["lr"] = rate.fill_(group["lr"])


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


Look = Callable[[Tensor, Tensor], None]
"""Given losses, (S,): has the next step skipped if one is not finite, and counts in a second tensor, (S,), which."""


def skipping(optimizer: torch.optim.Optimizer, device: torch.device) -> Look:
    """Looks on behalf of a fused optimiser."""
    # What it looks at before it changes anything; torch's gradient scaler sets the same.
    skip = torch.zeros((), device=device)
    vars(optimizer)["found_inf"] = skip

    def look(losses: Tensor, refused: Tensor) -> None:
        bad = losses - losses != 0  # a number less itself is 0 unless it is infinite or none
        skip.copy_(bad.any())
        refused.add_(bad)

    return look


@final
class Guard:
    """Stands before the steps of one optimiser, down the sum of `losses`."""

    def __init__(self, look: Look, device: torch.device, losses: int = 1) -> None:
        self._look = look
        self.refused = torch.zeros(losses, device=device)
        """How often each loss was not finite since it was last asked for."""

    def look(self, loss: Tensor) -> None:
        """Have the next step skipped if one of the losses it stands at is not finite."""
        self._look(loss.detach().view(self.refused.shape), self.refused)

    def tripped(self) -> list[int]:
        """Which losses were not finite since the last time, by their place. Waits for the device."""
        found = [place for place, times in enumerate(self.refused.tolist()) if times]
        self.refused.zero_()
        return found
