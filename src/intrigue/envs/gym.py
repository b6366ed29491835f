"""Any environment Gymnasium can make: `gym/<id>`, or `gym/module:Id` to import a module first.

Observations are encoded by `intrigue.spaces`: images stay images, all else (Box, Discrete, MultiDiscrete, MultiBinary,
Dict, Tuple) is flattened to float32. Text in a Dict (a MiniGrid mission) is left out; it has no number of its own.
Shape and kind of every observation are checked against the declared space, bounds are not: too many environments step
a rounding error outside them.

Gymnasium has no way to save an environment, so these cannot be saved: a resumed run starts new episodes.
Warnings of third-party environments follow the process's filters but never become errors (`-W error` drops them): one
deprecated call in a package must not end a run.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import gymnasium as gym
import numpy as np

from intrigue.envs.base import Env, EnvInfo, Step
from intrigue.envs.pool.checks import Violation, describe
from intrigue.envs.registry import register_env
from intrigue.errors import ConfigError, nearest
from intrigue.fields import NonNegativeInt
from intrigue.spaces import ActionCodec, Array, ObsCodec

NUMERIC = (
    gym.spaces.Box,
    gym.spaces.Discrete,
    gym.spaces.MultiDiscrete,
    gym.spaces.MultiBinary,
    gym.spaces.Dict,
    gym.spaces.Tuple,
)
STEP_PARTS = ("observation", "reward", "terminated", "truncated", "info")


@dataclass(frozen=True)
class GymConfig:
    """Settings of `gym`."""

    max_episode_steps: NonNegativeInt = 0  # 0: the limit the environment is registered with
    native_vector: bool = False  # step all environments through the id's own vectorized form, in this process


@register_env("gym", config=GymConfig)
@final
class GymEnv(Env):
    """One Gymnasium environment with encoded observations and actions."""

    examples = ("CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Blackjack-v1", "Taxi")

    def __init__(self, cfg: GymConfig, name: str, render: bool = False) -> None:
        more: dict[str, Any] = {"max_episode_steps": cfg.max_episode_steps} if cfg.max_episode_steps else {}
        if render:
            more["render_mode"] = "rgb_array"
        with _as_config_errors(name), _without_warning_errors():
            # Gymnasium's own checker only warns; `Violation` and the pool's checks refuse.
            self._env: gym.Env[Any, Any] = gym.make(name, disable_env_checker=True, **more)
        self._space = _drop_non_numeric(self._env.observation_space)
        self._obs = ObsCodec(self._space)
        self._action = ActionCodec(self._env.action_space)
        self._name = name
        self._can_render = render
        self.info = EnvInfo(self._space, self._env.action_space, can_snapshot=False)

    @classmethod
    def check_name(cls, name: str) -> list[str]:
        return check_name(name)

    @classmethod
    def make_native_vector(cls, cfg: GymConfig, name: str, num_envs: int) -> gym.vector.VectorEnv[Any, Any, Any]:
        more: dict[str, Any] = {"max_episode_steps": cfg.max_episode_steps} if cfg.max_episode_steps else {}
        with _as_config_errors(name), _without_warning_errors():
            return gym.make_vec(name, num_envs=num_envs, vectorization_mode="vector_entry_point", **more)

    def reset(self, seed: int | None) -> Array:
        with _without_warning_errors():
            result = self._env.reset(seed=seed)
        if not isinstance(result, tuple) or len(result) != 2:
            raise Violation("reset", "a pair of observation and info", describe(result))
        return self._encode(result[0])

    def step(self, action: Array) -> Step:
        with _without_warning_errors():
            result = self._env.step(self._action.decode(action))
        if not isinstance(result, tuple) or len(result) != len(STEP_PARTS):
            raise Violation("step", f"a tuple of {', '.join(STEP_PARTS)}", describe(result))
        obs, reward, terminated, truncated, _ = result
        # The flags and the reward are returned unchanged: the pool checks them for every family.
        return Step(self._encode(obs), reward, terminated, truncated)  # type: ignore[arg-type]

    def render(self) -> Array | None:
        if not self._can_render:
            return None
        with _as_config_errors(self._name), _without_warning_errors():
            return np.asarray(self._env.render(), dtype=np.uint8)

    def close(self) -> None:
        with _without_warning_errors():
            self._env.close()

    def _encode(self, obs: Any) -> Array:
        _check_space(self._space, obs, "observation")
        # A number too large for float32 becomes infinite, which the pool refuses with an error.
        with np.errstate(over="ignore"):
            return self._obs.encode(obs)


def check_name(name: str) -> list[str]:
    """What is wrong with the id after `gym/`, found without building or importing anything."""
    if not name:
        return ["no id given. Accepted: gym/<id> with an id Gymnasium knows, for example gym/CartPole-v1."]
    module, colon, _ = name.rpartition(":")
    if colon:
        with contextlib.suppress(ImportError, ValueError):
            if importlib.util.find_spec(module) is not None:
                return []
        return [
            f"module {module!r} is not found. Accepted: module:Id with an importable module. Install it, or fix it."
        ]
    known = set(gym.registry)
    unversioned = {re.sub(r"-v\d+$", "", each) for each in known}
    if name in known or name in unversioned:
        return []
    near = nearest(name, known)
    guess = f" Did you mean {near!r}?" if near else ""
    return [
        f"unknown id {name!r}.{guess} Accepted: one of the {len(known)} ids in gymnasium.registry, "
        "or module:Id for a package that registers its own. Install that package, or fix the name."
    ]


def _drop_non_numeric(space: gym.Space[Any]) -> gym.Space[Any]:
    """The space without the entries of a Dict that are not numeric."""
    if not isinstance(space, gym.spaces.Dict):
        return space
    kept = {key: _drop_non_numeric(part) for key, part in space.spaces.items() if isinstance(part, NUMERIC)}
    return gym.spaces.Dict(kept) if kept else space


def _check_space(space: gym.Space[Any], obs: Any, field: str) -> None:
    match space:
        case gym.spaces.Box():
            array = np.asarray(obs)
            if array.shape != space.shape or not np.can_cast(array.dtype, space.dtype, "same_kind"):
                raise Violation(field, f"{space.dtype} of shape {space.shape}", describe(array))
        case gym.spaces.Dict():
            if not isinstance(obs, dict) or not obs.keys() >= space.spaces.keys():
                raise Violation(field, f"a dict with keys {sorted(space.spaces)}", describe(obs))
            for key, part in space.spaces.items():
                _check_space(part, obs[key], f"{field}[{key!r}]")
        case gym.spaces.Tuple():
            if not isinstance(obs, tuple) or len(obs) != len(space.spaces):
                raise Violation(field, f"a tuple of {len(space.spaces)}", describe(obs))
            for position, part in enumerate(space.spaces):
                _check_space(part, obs[position], f"{field}[{position}]")
        case _ if not space.contains(obs):
            raise Violation(field, f"an element of {space}", describe(obs))


@contextlib.contextmanager
def _as_config_errors(name: str) -> Iterator[None]:
    try:
        yield
    except gym.error.Error as error:
        raise ConfigError(f"env: gym/{name}: Gymnasium refuses: {error}") from error


def _without_warning_errors() -> contextlib.AbstractContextManager[None]:
    """A scope in which no warning is raised as an error; costs nothing where no filter raises."""
    if any(each[0] == "error" for each in warnings.filters):
        return _warnings_dropped()
    return contextlib.nullcontext()


@contextlib.contextmanager
def _warnings_dropped() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
