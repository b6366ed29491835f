"""Saves and restores the whole state of a dm_control environment between two steps, to the bit.

    physics   MuJoCo's integration state: time, positions, velocities, activations, controls, the solver's warm start
    model     the arrays of the model that a task's starts change (places of targets, gains, terrain)
    task      the task's own numbers
    random    its NumPy `RandomState`

`mj_step1` follows, because dm_control's step ends with it and its next step begins with `mj_step2`: without it, that
would continue from the contacts and forces of another state. What depends on accelerations is computed in `mj_step2`.
"""

from __future__ import annotations

import numbers
from typing import Any

import mujoco
import numpy as np

from intrigue.envs.dmc.tasks import get_random_state
from intrigue.errors import RunError
from intrigue.spaces import Array
from intrigue.state import State

SPEC = int(mujoco.mjtState.mjSTATE_INTEGRATION)
# What tasks of the suite change in their models (a test checks for others), and the colours they set.
MODEL_FIELDS = (
    "body_pos", "body_quat", "dof_damping", "geom_pos", "geom_rgba", "geom_size", "hfield_data", "light_pos",
    "mat_rgba", "site_pos", "site_rgba", "site_size", "wrap_prm",
)  # fmt: skip


def save_env(env: Any) -> State:
    """The environment as a tree of arrays and plain values."""
    model = env.physics.model.ptr
    return {
        "physics": _integration_state(env),
        "model": {name: np.array(getattr(model, name)) for name in MODEL_FIELDS if _can_change(model, name)},
        "task": {name: value for name, value in vars(env.task).items() if _is_number(value)},
        "random": _save_random(get_random_state(env)),
    }


def load_env(env: Any, state: State) -> None:
    """Restore the state `save_env` returned into an environment of the same task."""
    env.reset()  # Out of an ended episode, which would reset by itself.
    model, data = env.physics.model.ptr, env.physics.data.ptr
    for name, field in state["model"].items():
        getattr(model, name)[...] = field
    for name, value in state["task"].items():
        setattr(env.task, name, value)
    mujoco.mj_setState(model, data, np.asarray(state["physics"], np.float64), SPEC)
    mujoco.mj_step1(model, data)
    if not np.array_equal(_integration_state(env), state["physics"]):
        # MuJoCo resets by itself where a number is invalid.
        raise RunError(
            "the saved state of the simulation did not come back as it was: a number in it is not finite or too large. "
            "Resume from an earlier checkpoint, or start a new run."
        )
    _load_random(get_random_state(env), state["random"])


def _integration_state(env: Any) -> Array:
    model, data = env.physics.model.ptr, env.physics.data.ptr
    state = np.empty(mujoco.mj_stateSize(model, SPEC))
    mujoco.mj_getState(model, data, state, SPEC)
    return state


def _can_change(model: Any, name: str) -> bool:
    if name == "hfield_data":  # Large, and in quadruped's model also where there is no terrain.
        return bool((model.geom_type == mujoco.mjtGeom.mjGEOM_HFIELD).any())
    return bool(getattr(model, name).size)


def _is_number(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biuf"
    return isinstance(value, numbers.Real | np.bool_)


def _save_random(random: np.random.RandomState) -> State:
    held = random.get_state(legacy=False)
    assert isinstance(held, dict)
    inner = held["state"]
    return {
        "key": np.asarray(inner["key"], np.int64),
        "position": int(inner["pos"]),
        "has_gauss": int(held["has_gauss"]),
        "gauss": float(held["gauss"]),
    }


def _load_random(random: np.random.RandomState, state: State) -> None:
    key: Array = np.asarray(state["key"]).astype(np.uint32)
    random.set_state(("MT19937", key, state["position"], state["has_gauss"], state["gauss"]))
