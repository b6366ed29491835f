"""An optimiser's state as a state tree (string keys only), and back."""

from __future__ import annotations

from typing import Any

import torch

from intrigue.state import State


def optimizer_state(optimizer: torch.optim.Optimizer) -> State:
    """Moments by parameter number, and the groups' settings."""
    state = optimizer.state_dict()
    return {
        "state": {str(index): dict(moments) for index, moments in state["state"].items()},
        "param_groups": [dict(group) for group in state["param_groups"]],
    }


def load_optimizer_state(optimizer: torch.optim.Optimizer, state: State) -> None:
    """Put back what `optimizer_state` gave."""
    groups: list[dict[str, Any]] = []
    for group in state["param_groups"]:
        groups.append({key: tuple(value) if key == "betas" else value for key, value in group.items()})
    optimizer.load_state_dict({"state": {int(k): dict(v) for k, v in state["state"].items()}, "param_groups": groups})
