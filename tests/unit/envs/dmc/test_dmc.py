"""`dmc/<domain>_<task>`: names, sizes, lengths, actions, ends of episodes, divergence, and lazy imports."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intrigue.cli import main
from intrigue.envs.dmc.fast_step import import_tasks
from intrigue.envs.dmc.names import NAMES, PRIMAL, SUITE, TASK_OF, URLB_TASKS, check_name, split_name
from intrigue.envs.make import make_env
from intrigue.envs.pool.config import PoolConfig
from intrigue.envs.pool.pool import make_pool
from intrigue.errors import EnvironmentFault

tasks = import_tasks()
URLB = [f"{domain}_{task}" for domain, names in URLB_TASKS.items() for task in names]
SIZES = {"walker": (24, 6, 1000, 0.025), "quadruped": (78, 12, 1000, 0.02), "jaco": (55, 9, 250, 0.04)}  # spec 3.1


def test_names_are_those_of_the_suite_and_of_urlb() -> None:
    from dm_control import suite

    assert set(SUITE) == set(suite.ALL_TASKS)
    assert len(URLB) == 12 and len(TASK_OF) == len(SUITE) + 7
    assert split_name("ball_in_cup_catch") == ("ball_in_cup", "catch", True)
    assert split_name("humanoid_CMU_run") == ("humanoid_CMU", "run", True)
    assert split_name("humanoid_run") == ("humanoid", "run", True)
    assert [split_name(each) for each in PRIMAL] == [
        ("walker", "stand", False),
        ("quadruped", "walk", False),
        ("jaco", "reach_top_left", False),
    ]
    assert not any(check_name(each) for each in NAMES)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("walker_rnu", "walker_run"), ("Walker_Run", "walker_run"), ("jaco_reach_left_top", "jaco_reach_top_left"),
     ("cup_catch", "ball_in_cup_catch"), ("quadrupped", "quadruped"), ("humanoid_cmu_run", "humanoid_CMU_run")],
)  # fmt: skip
def test_an_unknown_name_is_answered_with_the_nearest(wrong: str, right: str) -> None:
    (text,) = check_name(wrong)
    assert f"Did you mean 'dmc/{right}'?" in text and repr(wrong) in text


def test_a_wrong_task_exits_2_without_loading_the_physics(tmp_path: Path) -> None:
    code = (
        "import sys; from intrigue.cli import main; "
        "code = main(['train', 'dmc/walker_rnu', '--out', 'run']); "
        "assert not {'dm_control', 'mujoco', 'torch'} & set(sys.modules); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "dmc/walker_run" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("missing", ["dm_control", "mujoco"])
def test_a_missing_extra_says_the_command_that_installs_it(missing: str, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setitem(sys.modules, missing, None)  # How Python itself marks a module that cannot be imported.
    assert main(["train", "dmc/walker_run"]) == 2
    text = capsys.readouterr().err
    assert f"{missing} is not installed" in text and "pip install 'intrigue[dmc]'" in text


def test_mujoco_4_is_refused_with_the_reason(monkeypatch: Any) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "4.0.0")
    (text,) = check_name("walker_run")
    assert "mujoco 4.0.0" in text and "flex_vertedge" in text and "pip install 'mujoco<4'" in text


@pytest.mark.parametrize("gl", ["osmesa", "nonsense"])
def test_states_need_neither_opengl_nor_torch(gl: str) -> None:
    code = (
        "import os, sys, numpy; from intrigue.envs.make import make_env; "
        "env = make_env('dmc/quadruped_escape', {}); env.reset(0); env.step(numpy.zeros(12)); "
        "assert not {'OpenGL', 'torch', 'glfw'} & set(sys.modules), 'loaded needlessly'; "
        f"assert os.environ['MUJOCO_GL'] == {gl!r}"
    )
    environment = {**os.environ, "MUJOCO_GL": gl}
    subprocess.run([sys.executable, "-W", "error", "-c", code], env=environment, check=True)


@pytest.mark.parametrize("name", [*URLB, *PRIMAL])
def test_sizes_and_lengths_are_urlbs(name: str) -> None:
    env: Any = make_env(f"dmc/{name}", {})
    size, actions, length, seconds = SIZES[name.split("_")[0]]
    assert env.info.obs_space.shape == (size,) and env.reset(0).dtype == np.float32
    assert env.info.action_space.shape == (actions,)
    assert env.info.frames_per_step == 1
    env.restore({**env.snapshot(), "time": length - 2})
    began = env._dm.physics.time()
    for expected in (False, True):
        step = env.step(np.zeros(actions, np.float32))
        assert (step.terminated, step.truncated) == (False, expected)
    assert env._dm.physics.time() - began == pytest.approx(2 * seconds)
    env.reset(None)
    assert not env.step(np.zeros(actions, np.float32)).truncated


@pytest.mark.parametrize(("name", "length"), [("walker_flip", 1000), ("jaco_reach_bottom_right", 250)])
def test_a_whole_episode_ends_where_dm_controls_own_does(name: str, length: int) -> None:
    env: Any = make_env(f"dmc/{name}", {})
    own = tasks.make_dm_env(*split_name(name)[:2], seed=0)
    given, steps = own.reset(), 0
    while not given.last():
        given, steps = own.step(np.zeros(own.action_spec().shape)), steps + 1
    assert steps == env._limit == length


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TASK_OF))
def test_the_limit_of_every_task_is_dm_controls_own(name: str) -> None:
    env: Any = make_env(f"dmc/{name}", {})
    own = tasks.make_dm_env(*split_name(name)[:2], seed=0)
    if name.startswith("jaco"):
        assert env._limit == 250
    elif name.startswith("lqr"):
        assert own._step_limit == np.inf and env._limit == 1000
    else:
        assert env._limit == np.ceil(own._step_limit - 1e-6)


def test_a_state_is_dm_controls_numbers_in_its_own_order() -> None:
    env: Any = make_env("dmc/quadruped_walk", {})
    own = tasks.make_dm_env("quadruped", "walk", 7)
    parts = own.reset().observation
    order = ["egocentric_state", "torso_velocity", "torso_upright", "imu", "force_torque"]
    assert [np.size(parts[key]) for key in order] == [44, 3, 1, 6, 24]
    expected = np.concatenate([np.ravel(parts[key]) for key in order]).astype(np.float32)
    np.testing.assert_array_equal(env.reset(7), expected)
    walker, jaco = (tasks.make_dm_env(*each, 7).reset().observation for each in (("walker", "run"), ("jaco", BRICK)))
    assert [np.size(each) for each in walker.values()] == [14, 1, 9]
    assert [np.size(each) for each in jaco.values()] == [12, 6, 6, 3, 3, 3, 9, 3, 3, 4, 3]


BRICK = "reach_top_left"


@pytest.mark.parametrize("name", ["walker_run", "quadruped_run", "jaco_reach_top_left", "cartpole_swingup"])
def test_actions_are_scaled_to_the_actuators_bounds(name: str) -> None:
    from dm_control.suite.wrappers import action_scale

    env: Any = make_env(f"dmc/{name}", {})
    env.reset(0)
    own = tasks.make_dm_env(*split_name(name)[:2], seed=0)
    bounds, shape = own.action_spec(), env.info.action_space.shape
    for sign, side in ((-1, bounds.minimum), (1, bounds.maximum)):
        for beyond in (1.0, 1.5):
            np.testing.assert_array_equal(env._scale(np.full(shape, sign * beyond, np.float32)), side)
    np.testing.assert_allclose(env._scale(np.zeros(shape)), (bounds.minimum + bounds.maximum) / 2, atol=1e-15)
    wrapped = action_scale.Wrapper(own, minimum=-1.0, maximum=1.0)
    for action in np.random.default_rng(0).uniform(-1, 1, (50, *shape)).astype(np.float32):
        np.testing.assert_allclose(env._scale(action), wrapped._transform(action), rtol=1e-14, atol=1e-15)
    env.step(action)
    np.testing.assert_array_equal(env._dm.physics.data.ctrl, env._scale(action))


def test_quadrupeds_bounds_are_not_all_one() -> None:
    """So that a missing or transposed scale fails above."""
    env: Any = make_env("dmc/quadruped_run", {})
    assert env._low[:3].tolist() == [-1.0, -1.0, -0.8] and env._high[:3].tolist() == [1.0, 1.1, 0.8]


def test_a_number_without_a_bound_is_passed_on() -> None:
    env: Any = make_env("dmc/lqr_lqr_6_2", {})
    assert env._dm.action_spec().maximum.min() >= 1e9
    np.testing.assert_allclose(env._scale(np.array([0.25, -1.0])), [0.25, -1.0])


def test_an_action_repeated_sums_rewards_and_stops_at_the_limit() -> None:
    once, thrice = (make_env("dmc/walker_run", {"action_repeat": repeat}) for repeat in (1, 3))
    assert thrice.info.frames_per_step == 3
    once.reset(5), thrice.reset(5)
    action = np.full(6, 0.5, np.float32)
    singles = [once.step(action) for _ in range(3)]
    step = thrice.step(action)
    np.testing.assert_array_equal(step.obs, singles[-1].obs)
    assert step.reward == sum(each.reward for each in singles) > 0
    saved = thrice.snapshot()
    for begin, frames, over in ((996, 3, False), (997, 3, True), (999, 1, True)):
        thrice.restore({**saved, "time": begin})
        before = thrice._dm.physics.time()  # type: ignore[attr-defined]
        assert thrice.step(action).truncated == over
        assert thrice._dm.physics.time() - before == pytest.approx(frames * 0.025)  # type: ignore[attr-defined]


def test_a_limit_of_ones_own_counts_agent_steps() -> None:
    env = make_env("dmc/cartpole_balance", {"max_episode_steps": 4, "action_repeat": 2})
    for _ in range(2):
        env.reset(0)
        assert [env.step(np.zeros(1)).truncated for _ in range(4)] == [False, False, False, True]


def test_nothing_ever_terminates() -> None:
    """lqr's episodes end when the state has come to rest; that too is a cut-off, and its discount of 0 is not told."""
    env: Any = make_env("dmc/lqr_lqr_2_1", {})
    env.reset(0)
    env._dm.physics.data.qpos[:] = env._dm.physics.data.qvel[:] = 0.0
    env._dm.physics.forward()
    step = env.step(np.zeros(1))
    assert (step.terminated, step.truncated) == (False, True)


def test_a_domain_alone_has_the_primal_tasks_physics_and_no_reward() -> None:
    for domain, task in PRIMAL.items():
        free, primal = make_env(f"dmc/{domain}", {}), make_env(f"dmc/{domain}_{task}", {})
        np.testing.assert_array_equal(free.reset(11), primal.reset(11))
        for action in np.random.default_rng(1).uniform(-1, 1, (5, *free.info.action_space.shape)):
            got, expected = free.step(action), primal.step(action)
            np.testing.assert_array_equal(got.obs, expected.obs)
            assert got.reward == 0.0 < expected.reward


@pytest.mark.parametrize("name", ["walker_run", "jaco_reach_top_right", "lqr_lqr_2_1", "point_mass_hard"])
def test_a_seed_begins_everything_anew(name: str) -> None:
    used: Any
    fresh, used = make_env(f"dmc/{name}", {}), make_env(f"dmc/{name}", {})
    action = np.full(fresh.info.action_space.shape, 0.3, np.float32)
    used.reset(5), used.step(action), used.reset(None)
    first = fresh.reset(8).copy()
    np.testing.assert_array_equal(used.reset(8), first)
    for _ in range(3):
        np.testing.assert_array_equal(fresh.step(action).obs, used.step(action).obs)
    following = fresh.reset(None).copy()
    np.testing.assert_array_equal(used.reset(None), following)
    assert (first != following).any() and (fresh.reset(9) != first).any()


def test_first_episodes_are_shortened_only_if_asked() -> None:
    ends = []
    for stagger in (False, True):
        env = make_env("dmc/cartpole_balance", {"max_episode_steps": 20, "stagger": stagger})
        env.reset(0)
        env.shorten_first_episode(0.6)
        ends.append([env.step(np.zeros(1)).truncated for _ in range(20)].index(True) + 1)
        env.reset(None)
        assert not any(env.step(np.zeros(1)).truncated for _ in range(19))
    assert ends == [20, 8]


def diverging(state: Any) -> Any:
    """A saved cartpole whose velocities (after the time and two positions) no simulation can stand."""
    physics = state["dm"]["physics"].copy()
    physics[3:5] = 9e9
    return {**state, "dm": {**state["dm"], "physics": physics}}


def test_divergence_is_a_fault_with_seed_and_step() -> None:
    pool = make_pool("dmc/cartpole_swingup", {}, PoolConfig(num_envs=2, workers=0), seed=3)
    pool.reset()
    actions = np.zeros((2, 1), np.float32)
    for _ in range(4):
        pool.step(actions)
    saved = pool.snapshot()
    saved["envs"][1] = diverging(saved["envs"][1])
    pool.restore(saved)
    seed = saved["envs"][1]["seed"]
    text = rf"dmc/cartpole_swingup, index 1, step 5: the physics diverged after step 4 of an episode \(seed {seed}\)"
    with pytest.raises(EnvironmentFault, match=text) as caught:
        pool.step(actions)
    assert "max_divergences" in str(caught.value) and "Traceback" not in str(caught.value)


def test_a_number_that_is_not_finite_is_a_divergence_too() -> None:
    env: Any = make_env("dmc/cartpole_swingup", {})
    env.reset(0)
    env._dm.task.get_reward = lambda physics: np.nan
    with pytest.raises(Exception, match=r"diverged after step 1 of an episode \(seed 0\): .* not finite"):
        env.step(np.zeros(1))


def test_some_divergences_may_be_allowed_and_end_their_episode() -> None:
    env = make_env("dmc/cartpole_swingup", {"max_divergences": 1})
    env.reset(2)
    before = env.step(np.zeros(1)).obs.copy()
    env.restore(diverging(env.snapshot()))
    with pytest.warns(RuntimeWarning, match=r"diverged after step 1 .*seed 2.* cut off"):
        step = env.step(np.zeros(1))
    assert (step.reward, step.terminated, step.truncated) == (0.0, False, True)
    np.testing.assert_array_equal(step.obs, before)
    assert np.isfinite(env.reset(None)).all() and not env.step(np.zeros(1)).truncated
    env.restore(diverging(env.snapshot()))
    with pytest.raises(Exception, match="max_divergences, now 1"):
        env.step(np.zeros(1))
