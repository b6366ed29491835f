"""dm_control's physics step without what Python adds to it, and its observations as one flat array.

What is computed is what dm_control computes, to the bit. Of a walker's step, physics included, this saves an eighth: a
context manager, a comparison of warnings one by one, and arrays that live for a line.

dm_control imported without OpenGL: states need none, and a machine without it must not fail at an import.

dm_control looks for OpenGL when it is imported. Where a library is missing that ends in an error deep inside PyOpenGL
(`'NoneType' object has no attribute 'glGetError'`). It is switched off meanwhile; pictures are drawn through MuJoCo's
own bindings (`camera`), which load OpenGL when the first one is asked for.

dm_control's named arrays, with what their names mean looked up once.

A task reads its state by name at every step, `physics.named.data.xmat[1:, ["xx", "xz"]]`. Turning such names into
places is a fifth of a step, physics included (walker, by a profile); they never change while a model lives.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any, final

import mujoco
import numpy as np

from intrigue.spaces import Array


def quicken(physics: Any) -> None:
    """Let this physics step as `_Quick` does, where it steps as dm_control's environments do by default."""
    # Runge-Kutta's steps are taken otherwise; tasks that use it have few bodies, and nobody waits for them.
    if physics.legacy_step and physics.model.opt.integrator != mujoco.mjtIntegrator.mjINT_RK4.value:
        physics.__class__ = _quick(physics.__class__)


@cache
def _quick(kind: type[Any]) -> type[Any]:
    return kind if issubclass(kind, _Quick) else type(f"Quick{kind.__name__}", (_Quick, kind), {})


class _Quick:
    """Goes before a class of dm_control's `Physics`.

    Positions and velocities are up to date between steps: a step ends with `mj_step1`, the next begins with `mj_step2`.
    """

    _warnings: Array
    model: Any
    data: Any

    def step(self, nstep: int = 1) -> None:
        """Advance by so many steps of the integrator."""
        model, data, warnings = self.model.ptr, self.data.ptr, self._warnings
        before = warnings.tobytes()
        mujoco.mj_step2(model, data)
        if nstep > 1:
            mujoco.mj_step(model, data, nstep - 1)
        mujoco.mj_step1(model, data)
        if warnings.tobytes() != before:
            self._tell(before)

    def _tell(self, before: bytes) -> None:
        """Have dm_control see the warnings come, and say of them what it says."""
        now = self._warnings.copy()
        self._warnings[:] = np.frombuffer(before, now.dtype)
        with self.check_invalid_state():  # type: ignore[attr-defined]  # of the class behind this one
            self._warnings[:] = now


@final
class Flattener:
    """The parts of an observation one after the other, as dm_control lists them, which is URLB's order."""

    def __init__(self, observation: Mapping[str, Any]) -> None:
        shapes = [np.shape(part) for part in observation.values()]
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes]).tolist()
        begins = [0, *ends[:-1]]
        self.size: int = ends[-1]
        # Assigning to a place of its shape is what costs least: numbers to numbers, rows to rows.
        self._places: list[int | slice] = [
            slice(begin, end) if shape else begin for begin, end, shape in zip(begins, ends, shapes, strict=True)
        ]
        self._nested = any(len(shape) > 1 for shape in shapes)
        self._is_finite = np.zeros(self.size, bool)

    def __call__(self, observation: Mapping[str, Any]) -> Array:
        """A new array (size,) of float32."""
        flat = np.empty(self.size, np.float32)
        for place, part in zip(self._places, observation.values(), strict=True):
            flat[place] = np.ravel(part) if self._nested and isinstance(place, slice) else part
        return flat

    def finite(self, flat: Array) -> bool:
        """Whether all numbers are."""
        return bool(np.isfinite(flat, out=self._is_finite).all())


SWITCH = "MUJOCO_GL"


def dmc_tasks() -> ModuleType:
    """`intrigue.envs.dmc.tasks`, with dm_control behind it."""
    with _without_gl(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Third-party deprecations; also keeps dm_control's own filter from staying.
        from intrigue.envs.dmc import tasks as module
    return module


@contextlib.contextmanager
def _without_gl() -> Iterator[None]:
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = "disable"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SWITCH]
        else:
            os.environ[SWITCH] = before


Place = Any
"""What NumPy takes as an index."""


def remember_names(physics: Any) -> None:
    """Let every named array of this physics remember the places it has looked up."""
    for group in (physics.named.data, physics.named.model):
        for array in group._asdict().values():
            array._axes = type(array._axes)(*(axis and _Remembering(axis) for axis in array._axes))


@final
class _Remembering:
    """An axis of a named array that remembers where names lie; anything but names is passed on."""

    def __init__(self, axis: Any) -> None:
        self._axis = axis
        self._known: dict[Any, Place] = {}

    def convert_key_item(self, item: Any) -> Place:
        """Where these names lie."""
        key: str | tuple[str, ...]
        if isinstance(item, str):
            key = item
        elif isinstance(item, list) and item and all(isinstance(name, str) for name in item):
            key = tuple(item)
        else:
            return self._axis.convert_key_item(item)
        if key not in self._known:
            self._known[key] = self._axis.convert_key_item(item)
        return self._known[key]

    @property
    def names(self) -> Any:
        """The names of the axis."""
        return self._axis.names
