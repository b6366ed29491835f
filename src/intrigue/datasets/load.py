"""A new run whose replay holds exported episodes before its first step.

They are read once, before the run appears, and are in its first checkpoint: to resume, the folder is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from intrigue.errors import ConfigError, Problem
from intrigue.replay.prefill import OPTION, load_episodes
from intrigue.training.loops import AnyParts
from intrigue.training.replay_collector import ReplayCollector


def given_episodes(folder: Path) -> Callable[[AnyParts], Mapping[str, Any]]:
    """What `start` needs to begin with the episodes in `folder`; what they are goes into provenance.json.

    Raises:
        ConfigError: there are none; or, when it is called, the agent has no replay.
        CheckpointError: a file is missing or damaged.
    """
    dataset = load_episodes(folder)

    def prepare(parts: AnyParts) -> Mapping[str, Any]:
        if not isinstance(parts.collector, ReplayCollector):
            raise ConfigError([Problem(OPTION, "this agent has no replay. Use one that has: --agent dqn or ddpg.")])
        parts.collector.before = dataset
        return {"replay_from": dataset.describe()}

    return prepare
