"""`intrigue.train`: the path the command line takes, from Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from intrigue.config.run import RunConfig, flatten_json, resolve
from intrigue.datasets.load import given_episodes
from intrigue.presets import preset_layer
from intrigue.run.driver import start
from intrigue.run.result import Run


def train(
    config: RunConfig | Mapping[str, Any] | str,
    *,
    out: Path | str | None = None,
    quiet: bool = True,
    replay_from: Path | str | None = None,
) -> Run:
    """Train a new run: a `RunConfig`, a mapping as on the command line or as in config.json, or a preset's name.

    run = intrigue.train({"env": "rooms", "reward": "nnmc", "steps": 20_000})

    `replay_from` is a folder of episodes that the agent's replay holds from the start (`intrigue export`).
    """
    match config:
        case RunConfig():
            resolved = config
        case str():
            resolved = resolve(preset_layer(config))
        case _:
            layer = flatten_json(config)
            preset = layer.pop("preset", None)
            resolved = resolve(*([preset_layer(preset)] if preset else []), layer)
    given = None if replay_from is None else given_episodes(Path(replay_from))
    return start(resolved, out=None if out is None else Path(out), quiet=quiet, prepare=given)
