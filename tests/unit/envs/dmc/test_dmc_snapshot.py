"""Simulations come back exactly: states, rewards, starts of the episodes that follow, to the bit, in every task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

from conftest import TINY
from intrigue.config.run import resolve
from intrigue.envs.dmc.names import PRIMAL, TASK_OF
from intrigue.envs.dmc.snapshot import MODEL_FIELDS
from intrigue.envs.make import make_env
from intrigue.errors import RunError
from intrigue.run import checkpoint
from intrigue.run.driver import resume, start
from intrigue.state import from_bytes, to_bytes

# The three of URLB; a model changed by each start (point_mass, reacher); one drawn at building (lqr); terrain; contact.
SEVERAL = ("walker_run", "quadruped_jump", "point_mass_hard", "reacher_easy", "lqr_lqr_2_1", "hopper_hop")
LONG = 300


def trace(env: Any, actions: Any) -> list[Any]:
    """Everything to be seen over these actions, and the state of the simulation itself; one entry each."""
    seen: list[Any] = []
    for action in actions:
        step = env.step(action)
        after = env.reset(None).tobytes() if step.truncated else b""
        data = env._dm.physics.data
        seen.append((step.obs.tobytes(), *step[1:], after, data.qpos.tobytes(), data.qacc_warmstart.tobytes()))
    return seen


def assert_goes_on_exactly(name: str, limit: int, points: tuple[int, ...], further: int) -> None:
    """Save after these numbers of steps of one uninterrupted run; restore elsewhere, and compare all that follows."""
    env, used = (make_env(f"dmc/{name}", {"max_episode_steps": limit}) for _ in range(2))
    actions = np.random.default_rng(len(name)).uniform(-1, 1, (points[-1] + further, *env.info.action_space.shape))
    env.reset(3)
    saved, seen, done = {}, [], 0
    for point in points:
        seen += trace(env, actions[done:point])
        saved[point] = from_bytes(to_bytes(env.snapshot()))
        done = point
    seen += trace(env, actions[done:])
    assert sum(bool(each[5]) for each in seen) >= 2 or limit > len(seen), "resets must be crossed"
    used.reset(9)
    trace(used, actions[: min(5, limit - 1)])
    others = {**dict.fromkeys(points, used), points[-1]: make_env(f"dmc/{name}", {"max_episode_steps": limit})}
    for point, other in others.items():
        other.restore(saved[point])
        for offset, got in enumerate(trace(other, actions[point : point + further])):
            assert got == seen[point + offset], (name, point, offset)


@pytest.mark.parametrize("name", SEVERAL)
def test_a_restored_simulation_goes_on_exactly_across_resets(name: str) -> None:
    assert_goes_on_exactly(name, 130, (0, 1, 60), LONG)


def test_the_arm_goes_on_exactly_across_resets() -> None:
    assert_goes_on_exactly("jaco_reach_top_left", 130, (0, 40), LONG)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted([*TASK_OF, *PRIMAL]))
def test_every_task_goes_on_exactly(name: str) -> None:
    assert_goes_on_exactly(name, 60, (0, 1, 30, 59, 60), 150)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["walker", "quadruped", "jaco"])
def test_urlbs_domains_go_on_exactly_for_a_thousand_steps(name: str) -> None:
    assert_goes_on_exactly(name, 400, (0, 333), 1000)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TASK_OF))
def test_nothing_else_of_a_model_changes(name: str) -> None:
    """The list of what a snapshot holds of the model is complete, and the task's own numbers are numbers."""
    env: Any = make_env(f"dmc/{name}", {})
    env.reset(0)
    before = model_arrays(env)
    for _ in range(3):
        env.reset(None)
        trace(env, np.random.default_rng(0).uniform(-1, 1, (20, *env.info.action_space.shape)))
    after = model_arrays(env)
    changed = {key for key, value in before.items() if not np.array_equal(value, after[key], equal_nan=True)}
    assert changed <= set(MODEL_FIELDS), changed
    plain = (bool, int, float, str, tuple, list, np.generic, np.ndarray, np.random.RandomState)
    assert name.startswith("jaco") or all(isinstance(each, plain) for each in vars(env._dm.task).values())


def model_arrays(env: Any) -> dict[str, Any]:
    model = env._dm.physics.model.ptr
    values = {name: getattr(model, name) for name in dir(model) if not name.startswith("_")}
    return {name: value.copy() for name, value in values.items() if isinstance(value, np.ndarray)}


def test_positions_and_velocities_alone_are_not_enough() -> None:
    """Why the whole integration state is saved: without the solver's warm start the walker goes elsewhere."""
    env, other = (make_env("dmc/walker_run", {}) for _ in range(2))
    actions = np.random.default_rng(0).uniform(-1, 1, (250, 6))
    env.reset(0)
    trace(env, actions[:50])
    saved = env.snapshot()
    other.restore(saved)
    physics = other._dm.physics  # type: ignore[attr-defined]
    physics.data.qacc_warmstart[:] = 0.0
    assert trace(other, actions[50:]) != trace(env, actions[50:])


def test_a_state_that_no_simulation_stands_is_refused() -> None:
    env = make_env("dmc/walker_run", {})
    env.reset(0)
    saved = env.snapshot()
    assert saved["dm"]["physics"].size == mujoco.mj_stateSize(
        env._dm.physics.model.ptr,  # type: ignore[attr-defined]
        int(mujoco.mjtState.mjSTATE_INTEGRATION),
    )
    saved["dm"]["physics"][1] = np.nan
    with pytest.raises(RunError, match="did not come back"):
        make_env("dmc/walker_run", {}).restore(saved)


def test_a_snapshot_is_small() -> None:
    for name, limit in (("walker_run", 16_000), ("quadruped_run", 24_000), ("jaco_reach_top_left", 24_000)):
        env = make_env(f"dmc/{name}", {})
        env.reset(0)
        assert len(to_bytes(env.snapshot())) < limit


SMALL = {
    **{key: value for key, value in TINY.items() if not key.startswith("env")},
    "env": "dmc/walker", "env.max_episode_steps": 25, "pool.num_envs": 2, "agent.rollout_steps": 8,
    "agent.minibatches": 2, "agent.epochs": 1, "steps": 160, "checkpoint_every": 32,
}  # fmt: skip


def test_a_resumed_run_ends_on_the_calm_runs_digest(tmp_path: Path) -> None:
    calm = start(resolve(SMALL), out=tmp_path / "calm", quiet=True)
    start(resolve({**SMALL, "steps": 96}), out=tmp_path / "run", quiet=True)
    resume(tmp_path / "run", steps=160, quiet=True)
    assert checkpoint.digest(tmp_path / "run" / "checkpoints") == calm.digest()
