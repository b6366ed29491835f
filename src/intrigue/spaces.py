"""What the learner sees of Gymnasium's spaces: one array per observation, one per action.

Observations become `pixels` (uint8, channels first) or a `vector` (float32); actions become class indices or numbers.
This module loads no torch, so that environment workers start quickly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from intrigue.errors import ConfigError

# The smallest image the Nature trunk (8x8/4, 4x4/2, 3x3/1) can reduce to one position.
MIN_PIXELS = 36

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class ObsSpec:
    """Shape and kind of one encoded observation."""

    kind: Literal["pixels", "vector"]
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        """uint8 for pixels, float32 for vectors."""
        return np.dtype(np.uint8 if self.kind == "pixels" else np.float32)

    @property
    def size(self) -> int:
        """Numbers in one observation."""
        return int(np.prod(self.shape))


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """Shape and kind of one encoded action: `sizes` classes per part, or `low` to `high` per part."""

    kind: Literal["discrete", "multi-discrete", "continuous"]
    sizes: tuple[int, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one stored action: () for discrete, (parts,) otherwise."""
        match self.kind:
            case "discrete":
                return ()
            case "multi-discrete":
                return (len(self.sizes),)
            case "continuous":
                return (len(self.low),)

    @property
    def dtype(self) -> np.dtype[Any]:
        """int64 for classes, float32 for numbers."""
        return np.dtype(np.float32 if self.kind == "continuous" else np.int64)

    @property
    def width(self) -> int:
        """Length of the action as a network input: one-hot classes, or the numbers themselves."""
        return len(self.low) if self.kind == "continuous" else sum(self.sizes)


@dataclass(frozen=True, slots=True)
class Spaces:
    """Everything a network needs to know about an environment."""

    obs: ObsSpec
    action: ActionSpec
    skill: int = 0
    """Width of the skill a policy is asked to follow; 0 where the reward knows no skills."""


def make_spaces(obs_space: gym.Space[Any], action_space: gym.Space[Any]) -> Spaces:
    """The encoded form of a pair of Gymnasium spaces."""
    return Spaces(ObsCodec(obs_space).spec, ActionCodec(action_space).spec)


class ObsCodec:
    """Turns observations of a Gymnasium space into arrays of `spec`.

    Images are uint8 boxes of two or three axes and at least 36x36 pixels; the smallest of three holds the channels.
    Everything else (Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple of them) is flattened to float32,
    classes one-hot, in Gymnasium's own order.
    """

    def __init__(self, space: gym.Space[Any]) -> None:
        self.space = space
        self._channels_last = False
        if isinstance(space, gym.spaces.Box) and _is_image(space):
            shape = space.shape if len(space.shape) == 3 else (1, *space.shape)
            self._channels_last = len(space.shape) == 3 and shape[2] < shape[0]
            self.spec = ObsSpec("pixels", (shape[2], shape[0], shape[1]) if self._channels_last else shape)
            return
        if not space.is_np_flattenable:
            raise ConfigError(
                f"observation space {space} cannot be flattened to one vector. Accepted: Box, Discrete, MultiDiscrete, "
                "MultiBinary and Dict or Tuple of them. Wrap the environment so that it gives one of these."
            )
        self.spec = ObsSpec("vector", (gym.spaces.flatdim(space),))

    def encode(self, obs: Any) -> Array:
        """One observation as an array of `spec`."""
        if self.spec.kind == "pixels":
            image = np.asarray(obs)
            return image.transpose(2, 0, 1) if self._channels_last else image.reshape(self.spec.shape)
        if isinstance(self.space, gym.spaces.Box):
            return np.asarray(obs, dtype=np.float32).reshape(self.spec.shape)
        return np.asarray(gym.spaces.flatten(self.space, obs), dtype=np.float32)

    def encode_batch(self, obs: Any, lead: int) -> Array:
        """Observations with `lead` leading axes, as arrays of `spec` with the same leading axes.

        Dict observations come as a mapping of arrays, as Gymnasium's vector environments give them.
        """
        if isinstance(self.space, gym.spaces.Dict):
            if not isinstance(obs, Mapping):
                raise ConfigError(
                    f"observation: expected a mapping with keys {list(self.space.spaces)}, got {type(obs).__name__}."
                )
            parts = [ObsCodec._flat(space, obs[key], lead) for key, space in self.space.spaces.items()]
            return np.concatenate(parts, axis=-1)
        array = np.asarray(obs)
        if self.spec.kind == "pixels":
            return (
                np.moveaxis(array, -1, -3)
                if self._channels_last
                else array.reshape(*array.shape[:lead], *self.spec.shape)
            )
        return ObsCodec._flat(self.space, obs, lead)

    @staticmethod
    def _flat(space: gym.Space[Any], obs: Any, lead: int) -> Array:
        if isinstance(space, gym.spaces.Box | gym.spaces.MultiBinary):
            array = np.asarray(obs, dtype=np.float32)
            return array.reshape(*array.shape[:lead], -1)
        if isinstance(space, gym.spaces.Dict):
            parts = [ObsCodec._flat(part, obs[key], lead) for key, part in space.spaces.items()]
            return np.concatenate(parts, axis=-1)
        if isinstance(space, gym.spaces.Tuple):
            parts = [ObsCodec._flat(part, each, lead) for part, each in zip(space.spaces, obs, strict=True)]
            return np.concatenate(parts, axis=-1)
        array = np.asarray(obs)
        flat = array.reshape(-1, *array.shape[lead:])
        rows = np.stack([np.asarray(gym.spaces.flatten(space, row), dtype=np.float32) for row in flat])
        return rows.reshape(*array.shape[:lead], -1)


class ActionCodec:
    """Turns encoded actions into what the environment takes, and back."""

    def __init__(self, space: gym.Space[Any]) -> None:
        self.space = space
        match space:
            case gym.spaces.Discrete():
                self.spec = ActionSpec("discrete", sizes=(int(space.n),))
            case gym.spaces.MultiDiscrete():
                self.spec = ActionSpec("multi-discrete", sizes=tuple(int(n) for n in space.nvec.reshape(-1)))
            case gym.spaces.MultiBinary():
                self.spec = ActionSpec("multi-discrete", sizes=(2,) * int(np.prod(space.shape)))
            case gym.spaces.Box() if np.issubdtype(space.dtype, np.floating):
                low, high = (np.asarray(side, dtype=np.float64).reshape(-1) for side in (space.low, space.high))
                self.spec = ActionSpec("continuous", low=tuple(low.tolist()), high=tuple(high.tolist()))
            case _:
                raise ConfigError(
                    f"action space {space} is not supported. Accepted: Discrete, MultiDiscrete, MultiBinary and float "
                    "Box. Wrap the environment so that it takes one of these."
                )

    def decode(self, action: Array) -> Any:
        """What one environment's `step` takes for one encoded action."""
        match self.space:
            case gym.spaces.Discrete():
                return self.space.start + int(action)
            case gym.spaces.MultiDiscrete():
                return (self.space.start.reshape(-1) + action).astype(self.space.dtype).reshape(self.space.shape)
            case gym.spaces.MultiBinary():
                return np.asarray(action, dtype=self.space.dtype).reshape(self.space.shape)
            case _:
                box = self.space
                assert isinstance(box, gym.spaces.Box)
                return np.clip(action.reshape(box.shape), box.low, box.high).astype(box.dtype)

    def encode_batch(self, action: Any, lead: int) -> Array:
        """Actions with `lead` leading axes, as the environment took them, in encoded form."""
        array = np.asarray(action)
        match self.space:
            case gym.spaces.Discrete():
                return array.reshape(array.shape[:lead]).astype(np.int64) - int(self.space.start)
            case gym.spaces.MultiDiscrete():
                flat = array.reshape(*array.shape[:lead], -1).astype(np.int64)
                return np.asarray(flat - self.space.start.reshape(-1).astype(np.int64))
            case _:
                return array.reshape(*array.shape[:lead], -1).astype(self.spec.dtype)


def _is_image(space: gym.spaces.Box) -> bool:
    if space.dtype != np.uint8 or len(space.shape) not in (2, 3):
        return False
    sides = sorted(space.shape)[-2:]
    return sides[0] >= MIN_PIXELS
