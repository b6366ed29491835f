"""Pictures of a MuJoCo scene without a window, through EGL or OSMesa; loaded when the first picture is drawn.

The environment variable MUJOCO_GL selects the backend (`egl`, `osmesa`, `glfw`). Unset, it is EGL or OSMesa, the first
whose library is found, and GLFW only where there is a display. One context serves all cameras of a process.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes.util
import functools
import importlib
import os
import sys
import warnings
import weakref
from typing import Any, final

import mujoco
import numpy as np

from intrigue.errors import ConfigError
from intrigue.spaces import Array

LIBRARIES = {"egl": "EGL", "osmesa": "OSMesa"}
MAX_GEOMS = 1000  # In one scene; the suite's largest have some three hundred, decorations included.


@final
class Camera:
    """A camera, by name or number, of whatever model is passed to `picture`."""

    def __init__(self, camera: int | str, height: int, width: int) -> None:
        _context()
        self._camera, self._height, self._width = camera, height, width
        self._model: Any = None
        self._drawing: Any = None
        _CAMERAS.add(self)

    def picture(self, physics: Any) -> Array:
        """What the camera sees now, (height, width, 3) uint8."""
        model, data = physics.model.ptr, physics.data.ptr
        _context().make_current()
        if model is not self._model:
            self._prepare(model)
        for index in range(model.nhfield):
            mujoco.mjr_uploadHField(model, self._drawing, index)  # Terrain may have changed.
        mujoco.mjv_updateScene(
            model, data, self._option, None, self._view, int(mujoco.mjtCatBit.mjCAT_ALL), self._scene
        )
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._drawing)  # Another camera's may be bound.
        mujoco.mjr_render(self._rect, self._scene, self._drawing)
        image = np.empty((self._height, self._width, 3), np.uint8)
        mujoco.mjr_readPixels(image, None, self._rect, self._drawing)
        return np.ascontiguousarray(image[::-1])  # OpenGL's first row is the lowest.

    def close(self) -> None:
        """Free what the driver holds."""
        if self._drawing is not None:
            _context().make_current()
            self._drawing.free()
        self._model = self._drawing = None

    def _prepare(self, model: Any) -> None:
        self.close()
        self._model = model
        model.vis.global_.offwidth = max(model.vis.global_.offwidth, self._width)
        model.vis.global_.offheight = max(model.vis.global_.offheight, self._height)
        self._option = mujoco.MjvOption()
        self._option.flags[mujoco.mjtVisFlag.mjVIS_RANGEFINDER] = False  # As dm_control draws.
        self._scene = mujoco.MjvScene(model, MAX_GEOMS)
        self._rect = mujoco.MjrRect(0, 0, self._width, self._height)
        self._view = mujoco.MjvCamera()
        self._view.type = mujoco.mjtCamera.mjCAMERA_FIXED
        kind = mujoco.mjtObj.mjOBJ_CAMERA
        named = isinstance(self._camera, str)
        self._view.fixedcamid = mujoco.mj_name2id(model, kind, self._camera) if named else self._camera
        self._drawing = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)


_CAMERAS: weakref.WeakSet[Camera] = weakref.WeakSet()


@functools.cache
def _context() -> Any:
    backend = choose_backend()
    _load_triton_first()
    try:
        context = _window() if backend == "glfw" else importlib.import_module(f"mujoco.{backend}").GLContext(1, 1)
        context.make_current()
    except Exception as error:  # PyOpenGL fails in many ways, AttributeError among them.
        raise ConfigError(_no_gl(f"{backend} fails: {type(error).__name__}: {error}")) from error
    atexit.register(_close_all, context)
    return context


def _load_triton_first() -> None:
    """Triton and Mesa's software renderer each bring an LLVM, and the process crashes if Triton's comes second."""
    if "torch" in sys.modules:
        with contextlib.suppress(ImportError):
            importlib.import_module("triton")


def _window() -> Any:
    """GLFW's context, which is mujoco's for a window system; mujoco does not check whether there is one."""
    glfw = importlib.import_module("glfw")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # GLFW warns of the error that is raised here.
        if glfw.init():
            context = importlib.import_module("mujoco.glfw").GLContext(1, 1)
            context.make_current()
            if glfw.get_current_context():
                return context
        reason: bytes | None = glfw.get_error()[1]
    raise RuntimeError("no window can be opened" if reason is None else reason.decode(errors="replace"))


def choose_backend() -> str:
    """The module of `mujoco` that makes a drawing context here."""
    asked = os.environ.get("MUJOCO_GL", "").lower().strip()
    if asked in ("egl", "osmesa", "glfw"):
        return asked
    if asked not in ("", "glx", "enable", "enabled", "on", "true", "1"):
        raise ConfigError(_no_gl(f"MUJOCO_GL is {asked!r}"))
    for backend, library in LIBRARIES.items():
        if ctypes.util.find_library(library):
            return backend
    if os.environ.get("DISPLAY") or sys.platform != "linux":
        return "glfw"
    raise ConfigError(_no_gl("neither libEGL nor libOSMesa is found"))


def _no_gl(reason: str) -> str:
    return (
        f"env: dmc: pictures need OpenGL without a window, and {reason}. Accepted: MUJOCO_GL unset, egl or osmesa. "
        "Install one, for example with: apt install libegl1 (or libosmesa6). States need none: pixels=false."
    )


def _close_all(context: Any) -> None:
    for camera in list(_CAMERAS):
        camera.close()
    with contextlib.suppress(Exception):  # The driver may be gone at exit; nothing is left that could be lost.
        context.free()
