"""One environment as the worker pool sees it: encoded observations in, encoded actions out, state that can be saved.

An environment is one file in this package (or a plug-in file):

    @register_env("rooms", config=RoomsConfig)
    class Rooms(Env):
        def __init__(self, cfg: RoomsConfig, name: str) -> None: ...

`name` is what follows the family in the id: `CartPole-v1` of `gym/CartPole-v1`, empty for a built-in such as `rooms`.
No environment file may import torch: workers start without it.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym

from intrigue.errors import SnapshotUnsupported
from intrigue.spaces import Array
from intrigue.state import State


@dataclass(frozen=True, slots=True)
class EnvInfo:
    """Properties of an environment that never change."""

    obs_space: gym.Space[Any]
    action_space: gym.Space[Any]
    frames_per_step: int = 1
    places: int = 0
    """Number of distinct places (states of the map) that coverage counts; 0 where unknown."""
    can_snapshot: bool = True
    distractor_action: int | None = None
    """A discrete action that only triggers a distractor (the noisy TV's switch); its share of the steps is logged."""
    stack: int = 0
    """k > 0: an observation is the last k frames along its first axis, oldest first, and an episode's first one is k
    copies of one frame. A pool then transfers only the newest frame, and the learner stacks."""


class Step(NamedTuple):
    """The result of one step. `obs` is the true successor, also at the end of an episode."""

    obs: Array
    reward: float
    terminated: bool
    truncated: bool
    place: int = -1
    """Index of the place the agent is in now, below `EnvInfo.places`; -1 where unknown."""


class Env(abc.ABC):
    """A single environment. Observations and actions are encoded (`intrigue.spaces`)."""

    info: EnvInfo
    examples: ClassVar[tuple[str, ...]] = ("",)
    """Names after the family that the contract tests build; a built-in takes none."""
    worker_variables: ClassVar[Mapping[str, str]] = {}
    """Environment variables that worker processes of this family get, unless the user has set them. They must not
    change results: a pool without workers does not have them."""

    @classmethod
    def check_name(cls, name: str) -> list[str]:
        """What is wrong with the part of an id after the family, without building anything. Built-ins take none."""
        return [f"{name!r} follows an environment that takes no name. Remove it and the slash."] if name else []

    @classmethod
    def has_reward(cls, name: str) -> bool:
        """Whether environments of this name have an extrinsic reward; without one they are for bonuses alone."""
        return True

    @classmethod
    def make_native_vector(cls, cfg: Any, name: str, num_envs: int) -> gym.vector.VectorEnv[Any, Any, Any] | None:
        """The family's own vectorized form, asked for by the option `native_vector`; None where there is none."""
        return None

    @abc.abstractmethod
    def reset(self, seed: int | None) -> Array:
        """The first observation of a new episode. A seed restarts the environment's own random stream."""

    @abc.abstractmethod
    def step(self, action: Array) -> Step:
        """One agent step. Never resets by itself."""

    @property
    def game_continues(self) -> bool:
        """Whether the episode that just ended was one life of a game that `reset(None)` continues.

        Evaluation adds up the lives of a game.
        """
        return False

    def shorten_first_episode(self, fraction: float) -> None:
        """Shorten the first episode by this fraction of the time limit; called once, right after the first reset.

        Environments of a fixed episode length would otherwise all end at the same step for ever, and every rollout
        would show the learner the same part of an episode. Does nothing where there is no such limit.
        """
        return

    def snapshot(self) -> State:
        """All that `restore` needs to continue exactly from here."""
        raise SnapshotUnsupported(f"{type(self).__name__} cannot save its state")

    def restore(self, state: State) -> None:
        """Restore the state that `snapshot` returned."""
        raise SnapshotUnsupported(f"{type(self).__name__} cannot restore a saved state")

    def render(self) -> Array | None:
        """A picture of the present state, (height, width, 3) uint8, or None where there is none."""
        return None

    def close(self) -> None:
        """Free what the environment holds."""
        return
