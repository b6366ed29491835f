"""The preset of `make run`: small networks and a memory of states.

All values are ours, found on `rooms`; those that matter say why.
"""

from __future__ import annotations

from typing import Any

from intrigue.presets.registry import register_preset


@register_preset("quickstart")
def quickstart() -> dict[str, Any]:
    """The maze of `make run`: nuclear-norm curiosity alone, on two cores, in under a minute a run."""
    return {
        "env": "rooms",
        "agent": "ppo",
        "reward": "nnmc",
        "steps": 200_000,
        "threads": 1,
        "pool.num_envs": 16,
        "pool.workers": 0,  # a step of the maze costs less than handing it to another process
        "agent.epochs": 3,
        "agent.learning_rate": 1e-3,
        "agent.clip": 0.1,
        "agent.entropy_coef": 0.001,
        "agent.max_grad_norm": 0.0,
        # As RND: where the bonus is nearly zero everywhere, normalised advantages would be noise of full strength.
        "agent.normalize_advantage": False,
        "agent.hidden": 128,
        "reward.source": "knn",
        "reward.features": "raw",
        "reward.feature_dim": 64,
        "reward.hidden": 128,
        "reward.blocks": 0,
        # 16,384 of every 8th state: 131,072 steps. Shorter memories pay again for rooms that were left a while ago.
        "reward.memory": 16_384,
        "reward.memory_stride": 8,
        "curiosity.obs_norm": "none",  # positions are one-hot: a rare cell must not count more for being rare
        "curiosity.learning_rate": 3e-4,
    }
