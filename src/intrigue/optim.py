"""An optimiser's state as a state tree (string keys only), and back."""

from __future__ import annotations

from typing import Any

import torch

from intrigue.state import State


def optimizer_state(optimizer: torch.optim.Optimizer) -> State:
    """Moments by parameter number, and the groups' settings."""
    state = optimizer.state_dict()
    # Torch hands out its live moments and takes them over on loading; a copy keeps two optimisers apart.
    copied = {
        str(index): {name: _copy(value) for name, value in moments.items()} for index, moments in state["state"].items()
    }
    return {
        "state": copied,
        "param_groups": [dict(group) for group in state["param_groups"]],
    }


def load_optimizer_state(optimizer: torch.optim.Optimizer, state: State) -> None:
    """Put back what `optimizer_state` gave."""
    groups: list[dict[str, Any]] = []
    for group in state["param_groups"]:
        groups.append({key: tuple(value) if key == "betas" else value for key, value in group.items()})
    moments = {
        int(index): {name: _copy(value) for name, value in each.items()} for index, each in state["state"].items()
    }
    optimizer.load_state_dict({"state": moments, "param_groups": groups})


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value
