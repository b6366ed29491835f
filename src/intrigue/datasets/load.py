"""Loads exported episodes, also into the replay buffer of a new run before its first step.

    for episode in load_episodes(Path("walker-data")):     # each a `Recording`
        ...

A run reads them once, when it is created, and its first checkpoint holds them: a resume does not need the folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intrigue.datasets import exorl, minari
from intrigue.datasets.sealed_folder import Sealed, open_sealed
from intrigue.errors import ConfigError, Problem
from intrigue.replay.prefill import OPTION
from intrigue.replay.recording import Recordings
from intrigue.training.loops import AnyParts
from intrigue.training.replay_collector import ReplayCollector


@dataclass(frozen=True, slots=True)
class Dataset(Recordings):
    """The episodes in a folder."""

    sealed: Sealed

    def describe(self) -> dict[str, Any]:
        """Their origin, for provenance.json."""
        about = self.sealed.about or {}
        return {
            "folder": self.sealed.folder.resolve().name,
            "episodes": len(self),
            "transitions": self.transitions,
            "of": about.get("origin"),
            "seal": about.get("seal"),
        }


def load_episodes(folder: Path) -> Dataset:
    """The episodes that `intrigue export` wrote to `folder`, or that ExORL or Minari did. Read lazily.

    Raises:
        ConfigError: there is no such folder, or no episode in it.
        CheckpointError: a file is missing or damaged; the message names it. Also while episodes are read.
    """
    sealed = open_sealed(folder)
    recordings = None
    if exorl.list_episodes(folder):
        recordings = exorl.read(sealed)
    elif (folder / minari.FILES[0]).exists():
        recordings = minari.read(sealed)
    if recordings is None or not len(recordings):
        raise ConfigError(
            f"{folder} holds no episodes. Accepted: episode_<index>_<length>.npz files, or a Minari dataset's "
            f"{minari.FILES[0]}. `intrigue export DIR --to FOLDER` writes both."
        )
    return Dataset(recordings.lengths, recordings.episodes, sealed)


def prefill_from(folder: Path) -> Callable[[AnyParts], Mapping[str, Any]]:
    """A `prepare` for `start` that prefills the replay buffer from `folder`; returns their origin for provenance.json.

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
