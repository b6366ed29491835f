"""One guarded step of an optimiser, and its state as a state tree (string keys only) and back."""

from __future__ import annotations

from typing import Any

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
