"""dm_control imported without OpenGL: states need none, and a machine without it must not fail at an import.

dm_control looks for OpenGL when it is imported. Where a library is missing that ends in an error deep inside PyOpenGL
(`'NoneType' object has no attribute 'glGetError'`). It is switched off meanwhile; pictures are drawn through MuJoCo's
own bindings (`camera`), which load OpenGL when the first one is asked for.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from types import ModuleType

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
