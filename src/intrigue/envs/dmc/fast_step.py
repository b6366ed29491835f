"""dm_control with less Python per step, bit-identical, and imported without OpenGL.

    use_fast_step        a physics step without a context manager, a comparison of warnings one by one, and arrays that
                         live for a line; a walker's step, physics included, takes an eighth less
    Flattener            an observation as one flat array
    cache_name_lookups   tasks read their state by name at every step, `physics.named.data.xmat[1:, ["xx", "xz"]]`; to
                         resolve such names takes a fifth of a step (walker, by a profile), and while a model lives the
                         result never changes, so it is cached
    import_tasks         `tasks`, and with it dm_control, imported with OpenGL switched off

mujoco and dm_control look for OpenGL at import. States need none, and where a library is missing the import fails deep
inside PyOpenGL (`'NoneType' object has no attribute 'glGetError'`). Pictures are drawn through MuJoCo's own bindings
(`camera`), which load OpenGL when the first picture is drawn.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any, final

import numpy as np

from intrigue.spaces import Array

SWITCH = "MUJOCO_GL"


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


with _without_gl():
    import mujoco


def import_tasks() -> ModuleType:
    """`intrigue.envs.dmc.tasks`, with dm_control behind it."""
    with _without_gl(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Third-party deprecations; also keeps dm_control's own filter from staying.
        from intrigue.envs.dmc import tasks as module
    return module


def use_fast_step(physics: Any) -> None:
    """Make this physics step as `_FastStep` does, if it uses dm_control's default kind of step."""
    # Runge-Kutta steps differ; tasks that use it have few bodies and are fast anyway.
    if physics.legacy_step and physics.model.opt.integrator != mujoco.mjtIntegrator.mjINT_RK4.value:
        physics.__class__ = _fast_class(physics.__class__)


@cache
def _fast_class(kind: type[Any]) -> type[Any]:
    return kind if issubclass(kind, _FastStep) else type(f"Fast{kind.__name__}", (_FastStep, kind), {})


class _FastStep:
    """Mixin in front of a class of dm_control's `Physics`.

    Positions and velocities are up to date between steps: a step ends with `mj_step1`, the next begins with `mj_step2`.
    """

    _warnings: Array
    model: Any
    data: Any

    def step(self, nstep: int = 1) -> None:
        """Advance by `nstep` steps of the integrator."""
        model, data, warnings = self.model.ptr, self.data.ptr, self._warnings
        before = warnings.tobytes()
        mujoco.mj_step2(model, data)
        if nstep > 1:
            mujoco.mj_step(model, data, nstep - 1)
        mujoco.mj_step1(model, data)
        if warnings.tobytes() != before:
            self._report_warnings(before)

    def _report_warnings(self, before: bytes) -> None:
        """Let dm_control handle the new warnings as its own step does."""
        now = self._warnings.copy()
        self._warnings[:] = np.frombuffer(before, now.dtype)
        with self.check_invalid_state():  # type: ignore[attr-defined]  # of the class behind this one
            self._warnings[:] = now


@final
class Flattener:
    """Concatenates the parts of an observation in dm_control's order, which is URLB's."""

    def __init__(self, observation: Mapping[str, Any]) -> None:
        shapes = [np.shape(part) for part in observation.values()]
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes]).tolist()
        begins = [0, *ends[:-1]]
        self.size: int = ends[-1]
        # Fastest: a scalar is assigned to an index, a row to a slice.
        self._slots: list[int | slice] = [
            slice(begin, end) if shape else begin for begin, end, shape in zip(begins, ends, shapes, strict=True)
        ]
        self._nested = any(len(shape) > 1 for shape in shapes)
        self._finite_mask = np.zeros(self.size, bool)

    def __call__(self, observation: Mapping[str, Any]) -> Array:
        """A new array (size,) of float32."""
        flat = np.empty(self.size, np.float32)
        for slot, part in zip(self._slots, observation.values(), strict=True):
            flat[slot] = np.ravel(part) if self._nested and isinstance(slot, slice) else part
        return flat

    def is_finite(self, flat: Array) -> bool:
        """Whether all numbers are."""
        return bool(np.isfinite(flat, out=self._finite_mask).all())


def cache_name_lookups(physics: Any) -> None:
    """Make every named array of this physics cache the indices of names."""
    for group in (physics.named.data, physics.named.model):
        for array in group._asdict().values():
            array._axes = type(array._axes)(*(axis and _CachedAxis(axis) for axis in array._axes))


@final
class _CachedAxis:
    """An axis of a named array that caches the indices of names; any other key is passed on."""

    def __init__(self, axis: Any) -> None:
        self._axis = axis
        self._known: dict[Any, Any] = {}

    def convert_key_item(self, item: Any) -> Any:
        """The index of a name, or of a list of names."""
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
