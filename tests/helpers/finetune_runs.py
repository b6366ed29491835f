"""Tiny pre-trainings of the walker, and what to look at in them."""

from __future__ import annotations

from intrigue.config.run import resolve
from intrigue.presets import preset_layer
from intrigue.rewards.registry import REWARDS
from intrigue.run.driver import start

TINY = {
    "env.max_episode_steps": 10,
    "pool.workers": 0,  # starting a process costs more than all these steps
    "threads": 1,
    "device": "cpu",
    "run.products": "float32",  # on every machine
    "steps": 60,
    "run.snapshots": "30,60",
    "checkpoint_every": 1000,
    "agent.capacity": 200,
    "agent.batch": 8,
    "agent.hidden": 8,
    "agent.learning_starts": 20,
    "agent.rollout_steps": 20,
}
TINY_REWARD = {
    "feature_dim": 6, "hidden": 8, "n": 4, "k": 3, "prototypes": 4, "queue": 16, "density_hidden": 8, "code": 4,
}  # fmt: skip


def shrunk(preset, **changes):
    """A URLB preset so small that it runs in a moment."""
    known = REWARDS.declaration(resolve(preset_layer(preset)).reward_name).hints()
    reward = {f"reward.{name}": value for name, value in TINY_REWARD.items() if name in known}
    return resolve(preset_layer(preset), {**TINY, **reward, **changes})


def pretrained(folder, preset="nnm-urlb", **changes):
    """A finished pre-training with snapshots of 30 and 60 steps."""
    return start(shrunk(preset, **changes), out=folder, quiet=True)
