"""Finished episodes as plain arrays, and their spaces as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from intrigue.errors import CheckpointError
from intrigue.spaces import ActionSpec, Array, ObsSpec, Spaces
from intrigue.state import State


@dataclass(frozen=True, slots=True)
class Recording:
    """An episode of T transitions, terminated, truncated or both."""

    observations: Array
    """(T+1, *obs), the last being the final successor."""
    actions: Array
    """(T, *action)"""
    rewards: Array
    """(T,) float32, extrinsic"""
    skills: Array
    """(T, K) float32, K = 0 without skills"""
    terminated: bool
    truncated: bool

    def __len__(self) -> int:
        return len(self.actions)


@dataclass(frozen=True, slots=True)
class Recordings:
    """Finished episodes, read lazily."""

    lengths: Sequence[int]
    episodes: Iterable[Recording]

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[Recording]:
        return iter(self.episodes)

    @property
    def transitions(self) -> int:
        """The number of transitions in all episodes."""
        return sum(self.lengths)


def spaces_to_state(spaces: Spaces) -> State:
    """The spaces as plain values."""
    tree: dict[str, Any] = asdict(spaces)
    tree["obs"]["shape"] = list(spaces.obs.shape)
    tree["action"] = {"kind": spaces.action.kind} | {
        name: list(getattr(spaces.action, name)) for name in ("sizes", "low", "high")
    }
    return tree


def spaces_from_state(tree: State) -> Spaces:
    """The inverse of `spaces_to_state`."""
    obs, action = tree["obs"], tree["action"]
    return Spaces(
        ObsSpec(obs["kind"], tuple(obs["shape"])),
        ActionSpec(action["kind"], tuple(action["sizes"]), tuple(action["low"]), tuple(action["high"])),
        tree["skill"],
    )


def validate_recording(recording: Recording, name: str) -> Recording:
    """The episode, if it is complete.

    Raises:
        CheckpointError: wrong numbers of rows, values that are not finite, or no transition; begins with `name`.
    """
    length = len(recording)
    rows = {
        "observations": (len(recording.observations), length + 1),
        "rewards": (len(recording.rewards), length),
        "skills": (len(recording.skills), length),
    }
    wrong = [f"{actual} {what}, expected {expected}" for what, (actual, expected) in rows.items() if actual != expected]
    if not length:
        wrong.append("no transition")
    if recording.rewards.shape != (len(recording.rewards),) or recording.skills.ndim != 2:
        wrong.append("rewards or skills of another shape")
    for what in ("observations", "actions", "rewards", "skills"):
        array = getattr(recording, what)
        if array.dtype.kind not in "fiub":
            wrong.append(f"{what} of type {array.dtype}")
        elif not np.isfinite(array).all():
            wrong.append(f"{what} that are not finite")
    if wrong:
        raise CheckpointError(f"{name} does not hold an episode: {'; '.join(wrong)}")
    return recording
