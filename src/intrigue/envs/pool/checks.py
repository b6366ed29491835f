"""Checks of what environments return, at every step, and the error that names the environment that fails one."""

from __future__ import annotations

import numbers
import traceback
from typing import Any

import numpy as np

from intrigue.errors import EnvironmentFault, RunError
from intrigue.spaces import ActionSpec, Array, ObsSpec


class Violation(Exception):
    """An environment broke the `Env` contract or its declared spaces; becomes an `EnvironmentFault` with its name."""

    def __init__(self, field: str, expected: str, got: str) -> None:
        super().__init__(
            f"{field}: expected {expected}, got {got}. Fix the environment, or wrap it so that it keeps to this."
        )


def describe(value: object) -> str:
    """An array by dtype and shape, anything else by type and value."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:77] + '...'}"


def check_obs(obs: object, spec: ObsSpec) -> None:
    """Refuse an observation that is not an array of the declared shape and dtype, or is not finite."""
    if not isinstance(obs, np.ndarray) or obs.shape != spec.shape or obs.dtype != spec.dtype:
        raise Violation("observation", f"an array of {spec.dtype} of shape {spec.shape}", describe(obs))
    if spec.kind == "vector" and not np.isfinite(obs).all():
        raise Violation("observation", "finite numbers", describe_non_finite(obs))


def describe_non_finite(obs: Array) -> str:
    """Position and value of the first number that is not finite."""
    where = np.argwhere(~np.isfinite(obs))
    position = tuple(int(each) for each in where[0])
    return f"{obs[position]} at position {position} ({len(where)} of {obs.size} not finite)"


def check_reward(reward: Any) -> float:
    """The reward as a float; refused unless it is one real, finite number."""
    if isinstance(reward, np.ndarray) and reward.shape == ():
        reward = reward.item()
    if not isinstance(reward, numbers.Real | np.bool_):
        raise Violation("reward", "one finite real number", describe(reward))
    value = float(reward)
    if not np.isfinite(value):
        raise Violation("reward", "one finite real number", repr(value))
    return value


def check_flag(flag: Any, field: str) -> bool:
    """The flag as a bool; refused unless it is True or False."""
    if isinstance(flag, np.ndarray) and flag.shape == ():
        flag = flag.item()
    if not isinstance(flag, bool | np.bool_):
        raise Violation(field, "True or False", describe(flag))
    return bool(flag)


def check_actions(action: Array, spec: ActionSpec, num_envs: int) -> Array:
    """The actions of a pool as an array of `spec`; refused when the shape, a class or a number is invalid."""
    array = np.asarray(action)
    common = array.dtype == np.int64 and spec.kind == "discrete" and array.shape == (num_envs,)
    # The common case in one comparison: read as unsigned, a negative number is a large one.
    if common and (array.view(np.uint64) < spec.sizes[0]).all():
        return array
    if array.shape != (num_envs, *spec.shape):
        raise RunError(f"action: expected shape {(num_envs, *spec.shape)}, got {array.shape}.")
    if spec.kind == "continuous":
        if not np.isfinite(array).all():
            raise RunError(f"action: expected finite numbers, got {describe_non_finite(array)}.")
    elif not np.issubdtype(array.dtype, np.integer) or array.min() < 0 or (array >= np.asarray(spec.sizes)).any():
        raise RunError(f"action: expected whole numbers from 0 to below {spec.sizes}, got {describe(array)}: {array}.")
    return array


def make_fault(env_id: str, index: int | str, when: str, cause: BaseException | str) -> EnvironmentFault:
    """The error for one environment: its id and index, when, and why; an exception's traceback is kept as text."""
    label = f"environment {env_id}, index {index}, {when}"
    if isinstance(cause, str | Violation):
        return EnvironmentFault(f"{label}: {cause}")
    text = "".join(traceback.format_exception(type(cause), cause, cause.__traceback__)).rstrip()
    return EnvironmentFault(f"{label}: raised {type(cause).__name__}: {cause}\n{text}")


def describe_when(stage: str, steps: int) -> str:
    """Stage (of `STAGES`) and the environment's own step count in words, for an error."""
    match stage:
        case "build":
            return "while it was built"
        case "step":
            return f"step {steps}"
        case "idle":
            return f"waiting after step {steps}"
        case _:
            return f"in {stage} after step {steps}" if steps else f"in {stage} before its first step"
