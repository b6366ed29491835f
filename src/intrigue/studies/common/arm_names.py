"""What a run is called in tables: the nearest preset, and what was set differently from it.

A run folder knows its settings, not how they were typed. Of all presets for the run's family of environments (`atari`,
`dmc`) with its agent and reward, the one with the fewest differing settings is named, and the differences are listed.
Settings that do not change what is learned (workers, device, how often it is saved, steps, seed) do not count.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from intrigue.config.run import flatten_json, resolve
from intrigue.envs.registry import split_id
from intrigue.presets import PRESETS, preset_layer

KEEPING = ("pool.workers", "pool.groups", "pool.step_timeout_seconds", "pool.start_timeout_seconds")


@dataclass(frozen=True, order=True)
class ArmName:
    """A preset and what was changed in it, `key=value` with spaces between; both may be empty."""

    preset: str
    changes: str = ""

    def __str__(self) -> str:
        return f"{self.preset} {self.changes}".strip()


def name_run(config: Mapping[str, Any], without: Collection[str] = ()) -> ArmName:
    """The name for a run's config.json; settings named in `without` do not count."""
    mine = _settings(flatten_json(config))
    env = str(config["env"]["id"])
    best: tuple[int, ArmName] | None = None
    for preset in _presets_of(split_id(env)[0]):
        theirs = _resolved(preset, env)
        if any(mine[part] != theirs[part] for part in ("agent", "reward")):
            continue
        shared = (mine.keys() & theirs.keys()) - set(without)
        changed = sorted(key for key in shared if mine[key] != theirs[key])
        found = (len(changed), ArmName(preset, " ".join(f"{key}={mine[key]}" for key in changed)))
        if best is None or found[0] < best[0]:
            best = found
    # No preset has this reward: its name is all there is to say.
    return ArmName(str(config["reward"]["name"])) if best is None else best[1]


def _settings(layer: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value for key, value in layer.items() if key != "env" and not key.startswith("run.") and key not in KEEPING
    }


@functools.lru_cache(maxsize=256)
def _resolved(preset: str, env: str) -> dict[str, Any]:
    return _settings(flatten_json(resolve(preset_layer(preset), {"env": env}).to_json()))


@functools.lru_cache(maxsize=8)
def _presets_of(family: str) -> tuple[str, ...]:
    """Short names first: where two presets are equally near, the plainer one is meant."""
    named = [name for name in PRESETS.names() if split_id(str(preset_layer(name).get("env", "")))[0] == family]
    return tuple(sorted(named, key=lambda name: (len(name), name)))
