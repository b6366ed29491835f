"""dm_control's physics step without what Python adds to it, and its observations as one flat array.

What is computed is what dm_control computes, to the bit. Of a walker's step, physics included, this saves an eighth: a
context manager, a comparison of warnings one by one, and arrays that live for a line.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
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
