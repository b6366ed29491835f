"""intrigue makes reinforcement-learning agents curious.

    score = intrigue.nuclear_score(z)                                  # (..., n, m) -> (...,)
    curiosity = intrigue.Curiosity("nnm", obs_space, action_space)     # a bonus for the loop you already have
    run = intrigue.train({"env": "rooms", "reward": "nnmc"})           # or let us train

Names are loaded when first used, so that importing the package loads neither torch nor anything else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from intrigue.api import list_agents, list_envs, list_presets, list_rewards, list_studies, train
    from intrigue.config.run import RunConfig
    from intrigue.curiosity.curiosity import Curiosity
    from intrigue.nuclear import nuclear_norm, nuclear_score
    from intrigue.run.folder import Run
    from intrigue.types import RewardStep, Transitions


__version__ = "0.1.0"


_HOMES = {
    "Curiosity": "intrigue.curiosity.curiosity",
    "RewardStep": "intrigue.types",
    "Run": "intrigue.run.folder",
    "RunConfig": "intrigue.config.run",
    "Transitions": "intrigue.types",
    "list_agents": "intrigue.api",
    "list_envs": "intrigue.api",
    "list_presets": "intrigue.api",
    "list_rewards": "intrigue.api",
    "list_studies": "intrigue.api",
    "nuclear_norm": "intrigue.nuclear",
    "nuclear_score": "intrigue.nuclear",
    "train": "intrigue.api",
}

__all__ = [
    "Curiosity",
    "RewardStep",
    "Run",
    "RunConfig",
    "Transitions",
    "__version__",
    "list_agents",
    "list_envs",
    "list_presets",
    "list_rewards",
    "list_studies",
    "nuclear_norm",
    "nuclear_score",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'intrigue' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
