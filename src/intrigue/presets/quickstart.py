"""The maze of `make run`: nuclear-norm curiosity alone, on two cores, in under a minute a run."""

from __future__ import annotations

from typing import Any

from intrigue.presets.registry import register_preset


@register_preset("quickstart")
def quickstart() -> dict[str, Any]:
    """Small networks and a memory of states; every value ours, found on `rooms`."""
    return {
        "env": "rooms",
        "agent": "ppo",
        "reward": "nnmc",
        "steps": 150_000,
        "threads": 1,
        "pool.num_envs": 16,
        "pool.workers": 0,
        "agent.epochs": 3,
        "agent.learning_rate": 3e-4,
        "agent.clip": 0.1,
        "agent.entropy_coef": 0.001,
        "agent.max_grad_norm": 0.0,
        "agent.hidden": 128,
        "reward.source": "knn",
        "reward.features": "raw",
        "reward.feature_dim": 64,
        "reward.hidden": 128,
        "reward.blocks": 0,
        "reward.memory": 8192,
        "reward.memory_stride": 4,
        "curiosity.obs_norm": "none",
        "curiosity.learning_rate": 3e-4,
    }
