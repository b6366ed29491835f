"""Pictures instead of states: what dm_control itself draws, stacked, saved; and what is said where nothing can draw."""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from intrigue.envs.dmc.fast_step import import_tasks
from intrigue.envs.make import make_env
from intrigue.errors import ConfigError

import_tasks()
from intrigue.envs.dmc import camera  # noqa: E402  dm_control must be imported without OpenGL first.

PIXELS = {"pixels": True, "max_episode_steps": 6}


def built(name: str, options: dict[str, Any]) -> Any:
    """The environment; where there is no OpenGL, None once it was said what is missing and what helps."""
    try:
        return make_env(f"dmc/{name}", options)
    except ConfigError:
        with pytest.raises(ConfigError, match=r"pictures need OpenGL .*MUJOCO_GL.*apt install libegl1.*pixels=false"):
            make_env(f"dmc/{name}", options)
        return None


def test_a_picture_is_the_one_dm_control_draws(tmp_path: Path) -> None:
    env = built("quadruped_run", PIXELS)
    if env is None:
        return
    code = (
        "import numpy, sys; from dm_control import suite; "
        "env = suite.load('quadruped', 'run', task_kwargs={'random': 4}); env.reset(); "
        "numpy.save(sys.argv[1], env.physics.render(84, 84, camera_id=2))"
    )
    file = tmp_path / "theirs.npy"
    environment = {**os.environ, "MUJOCO_GL": camera.choose_backend()}
    subprocess.run([sys.executable, "-c", code, str(file)], env=environment, check=True)
    theirs = np.load(file).transpose(2, 0, 1)
    assert theirs.std() > 5
    np.testing.assert_array_equal(env.reset(4), np.concatenate([theirs] * 3))


def test_the_last_three_pictures_are_stacked_and_saved() -> None:
    env, other = built("walker_run", PIXELS), built("walker_run", PIXELS)
    if env is None:
        return
    assert env.info.obs_space.shape == (9, 84, 84) and env.info.obs_space.dtype == np.uint8
    actions = np.random.default_rng(0).uniform(-1, 1, (14, *env.info.action_space.shape))
    first = env.reset(2).copy()
    assert first.dtype == np.uint8 and first.std() > 5
    np.testing.assert_array_equal(first[:3], first[6:])
    before = first
    for action in actions[:4]:
        after = env.step(action).obs
        np.testing.assert_array_equal(after[:6], before[3:])
        assert (after[6:] != before[6:]).any()
        before = after.copy()
    saved = env.snapshot()
    other.reset(7)
    other.restore(saved)
    for action in actions[4:]:
        got, expected = other.step(action), env.step(action)
        np.testing.assert_array_equal(got.obs, expected.obs)
        if expected.truncated:
            np.testing.assert_array_equal(other.reset(None), env.reset(None))
    env.close()
    other.close()


@pytest.mark.parametrize("name", ["cartpole_swingup", "jaco_reach_top_left"])
def test_one_picture_and_videos(name: str) -> None:
    env = built(name, {"pixels": True, "frame_stack": 1})
    if env is None:
        return
    first = env.reset(0)
    assert first.shape == (3, 84, 84) and first.std() > 5
    picture = env.render()
    assert picture.shape == (240, 320, 3) and picture.dtype == np.uint8 and picture.std() > 5
    states = make_env(f"dmc/{name}", {}, render=True)
    states.reset(0)
    np.testing.assert_array_equal(states.render(), picture)


def test_triton_can_still_be_loaded_once_pictures_were_drawn() -> None:
    """Mesa's LLVM before Triton's would end the process; the last line is only reached without that."""
    code = (
        "import torch; from intrigue.envs.make import make_env; from intrigue.errors import ConfigError\n"
        "try: make_env('dmc/cartpole_swingup', {'pixels': True}).reset(0)\n"
        "except ConfigError: pass\n"
        "import triton; print('alive')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr[-2000:]


def test_the_backend_is_the_one_asked_for_or_the_first_there_is(monkeypatch: Any) -> None:
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: "there" if name == "OSMesa" else None)
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    assert camera.choose_backend() == "osmesa"
    monkeypatch.setenv("MUJOCO_GL", "egl")
    assert camera.choose_backend() == "egl"
    monkeypatch.setenv("MUJOCO_GL", "disable")
    with pytest.raises(ConfigError, match="MUJOCO_GL is 'disable'"):
        camera.choose_backend()
    monkeypatch.setenv("MUJOCO_GL", "")
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(ConfigError, match=r"neither libEGL nor libOSMesa is found.*libegl1"):
        camera.choose_backend()


def test_a_backend_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    """In a process of its own: OpenGL is chosen once per process."""
    code = "import sys; from intrigue.cli import main; sys.exit(main(sys.argv[1:]))"
    environment = {**os.environ, "MUJOCO_GL": "osmesa", "LD_LIBRARY_PATH": str(tmp_path)}
    command = [sys.executable, "-c", code, "train", "dmc/walker", "--env.pixels", "--out", str(tmp_path / "run")]
    if ctypes.util.find_library("OSMesa"):
        environment["PYOPENGL_PLATFORM"] = "egl"  # Which OSMesa's binding refuses.
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "pictures need OpenGL" in done.stderr and "osmesa fails" in done.stderr and "Traceback" not in done.stderr


def test_a_window_system_without_a_display_is_one_clear_line(tmp_path: Path) -> None:
    """GLFW only warns, and mujoco goes on without a context until the first picture."""
    code = "import sys; from intrigue.cli import main; sys.exit(main(sys.argv[1:]))"
    hidden = ("DISPLAY", "WAYLAND_DISPLAY")
    environment = {name: text for name, text in os.environ.items() if name not in hidden} | {"MUJOCO_GL": "glfw"}
    command = [sys.executable, "-c", code, "train", "dmc/walker", "--env.pixels", "--out", str(tmp_path / "run")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: env: dmc: pictures need OpenGL without a window, and glfw fails: ")
    assert done.stderr.count("\n") == 1 and "pixels=false" in done.stderr
    assert list(tmp_path.iterdir()) == [], "nothing was created"


def test_a_window_that_cannot_be_opened_is_told_with_glfws_reason(monkeypatch: Any) -> None:
    glfw = SimpleNamespace(
        init=lambda: True, get_current_context=lambda: None, get_error=lambda: (65542, b"GLX: none there")
    )
    monkeypatch.setitem(sys.modules, "glfw", glfw)
    monkeypatch.setitem(
        sys.modules, "mujoco.glfw", SimpleNamespace(GLContext=lambda *_: SimpleNamespace(make_current=lambda: None))
    )
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    with pytest.raises(ConfigError, match=r"glfw fails: RuntimeError: GLX: none there\. Accepted"):
        camera._context.__wrapped__()
