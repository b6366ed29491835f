"""dm_control's environment of a task: the suite's own, and URLB's seven that the suite does not have.

    walker_flip       stand · (5 tol(L; >= 5, margin 5, linear, 0 there) + 1) / 6      L: angular momentum about y
    quadruped_stand   upright
    quadruped_jump    upright · tol(z; >= 1, margin 1, linear, 1/2 there)              z: height of the centre of mass
    jaco_reach_*      `reach`

    stand = (3 tol(height; >= 1.2, margin 0.6, gaussian) + (1 + zz) / 2) / 4,   zz: the torso's z axis along the world's
    upright = tol(zz; >= 1, margin 2, linear, 0 there)

tol is dm_control's tolerance: 1 inside the bounds, falling to `value_at_margin` at a distance of `margin` outside.
Constants are URLB's; models, starts and observations are the stock ones of dm_control, to which URLB's are identical.
Importing this file imports dm_control, so others import it through `fast_step.import_tasks`.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any, final

import numpy as np
from absl import logging
from dm_control import suite
from dm_control.rl import control
from dm_control.suite import common, quadruped, walker
from dm_control.utils import rewards

from intrigue.envs.dmc.reach import REACH_SECONDS, make_reach
from intrigue.errors import ConfigError

WALKER_SECONDS, WALKER_TIMESTEP = 25, 0.025  # the suite's
SPIN_MOMENTUM = 5.0  # kg m²/s, URLB
QUADRUPED_SECONDS, QUADRUPED_TIMESTEP = 20, 0.02  # the suite's
WALK_SPEED = 0.5  # m/s, the suite's; with it the floor is as far as one can walk in an episode
JUMP_HEIGHT = 1.0  # m, URLB


@final
class Flip(walker.PlanarWalker):
    """Spin forwards while standing as high and upright as possible."""

    def __init__(self, random: Any) -> None:
        super().__init__(move_speed=0, random=random)  # 0: the suite's reward is that of standing

    def get_reward(self, physics: Any) -> float:
        """Standing times spinning."""
        spin = _at_least(physics.named.data.subtree_angmom["torso"][1], SPIN_MOMENTUM, SPIN_MOMENTUM, 0.0)
        return float(super().get_reward(physics) * (5 * spin + 1) / 6)


class Upright(quadruped.Move):
    """Stand: the torso's z axis along the world's."""

    def __init__(self, random: Any) -> None:
        super().__init__(desired_speed=WALK_SPEED, random=random)  # the speed only matters to the suite's reward

    def get_reward(self, physics: Any) -> float:
        """1 upright, 0 upside down."""
        return _at_least(physics.torso_upright(), 1.0, 2.0, 0.0)


@final
class Jump(Upright):
    """Bring the centre of mass up while upright."""

    def get_reward(self, physics: Any) -> float:
        """Uprightness times height."""
        height = physics.named.data.sensordata["center_of_mass"][2]
        return super().get_reward(physics) * _at_least(height, JUMP_HEIGHT, JUMP_HEIGHT, 0.5)


@final
class HeadlessQuadruped(quadruped.Physics):
    """Physics without rendering contexts: otherwise `escape` would load OpenGL to upload new terrain."""

    contexts = None


def make_dm_env(domain: str, task: str, seed: int, limited: bool = True) -> Any:
    """The dm_env environment of a task; without its time limit if not `limited`."""
    if domain == "jaco":
        return make_reach(task, seed, REACH_SECONDS if limited else math.inf)
    build = OUR_OWN.get((domain, task)) or _of_suite(domain, task)
    with _errors_only():
        return build(random=seed) if limited else build(random=seed, time_limit=math.inf)


def episode_seconds(domain: str, task: str) -> float:
    """The task's time limit, infinite where it has none."""
    if domain == "jaco":
        return REACH_SECONDS
    build = OUR_OWN.get((domain, task)) or _of_suite(domain, task)
    return float(inspect.signature(build).parameters["time_limit"].default)


def get_random_state(env: Any) -> np.random.RandomState:
    """The random state that all of the environment's draws come from."""
    random = env.random_state if hasattr(env, "random_state") else env.task.random
    assert isinstance(random, np.random.RandomState)
    return random


def _of_suite(domain: str, task: str) -> Any:
    tasks = getattr(getattr(suite, domain, None), "SUITE", {})
    if task not in tasks:
        raise ConfigError(
            f"env: dmc/{domain}_{task}: the dm_control that is installed has no such task. "
            "Install a newer one with: pip install --upgrade dm_control 'mujoco<4'"
        )
    return tasks[task]


def _flip(random: int, time_limit: float = WALKER_SECONDS) -> Any:
    physics = walker.Physics.from_xml_string(*walker.get_model_and_assets())
    return control.Environment(physics, Flip(random), time_limit=time_limit, control_timestep=WALKER_TIMESTEP)


def _upright(random: int, time_limit: float = QUADRUPED_SECONDS) -> Any:
    return _quadruped(Upright(random), time_limit)


def _jump(random: int, time_limit: float = QUADRUPED_SECONDS) -> Any:
    return _quadruped(Jump(random), time_limit)


def _escape(random: int, time_limit: float = QUADRUPED_SECONDS) -> Any:
    """The suite's own but for its physics; with the suite's floor."""
    model = quadruped.make_model(floor_size=40, terrain=True, rangefinders=True)
    physics, task = HeadlessQuadruped.from_xml_string(model, common.ASSETS), quadruped.Escape(random)
    return control.Environment(physics, task, time_limit=time_limit, control_timestep=QUADRUPED_TIMESTEP)


def _quadruped(task: Any, time_limit: float) -> Any:
    model = quadruped.make_model(floor_size=QUADRUPED_SECONDS * WALK_SPEED)
    physics = quadruped.Physics.from_xml_string(model, common.ASSETS)
    return control.Environment(physics, task, time_limit=time_limit, control_timestep=QUADRUPED_TIMESTEP)


@contextlib.contextmanager
def _errors_only() -> Iterator[None]:
    """No warnings of MuJoCo about deprecated elements in the suite's models, which we cannot change."""
    before = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _at_least(value: float, bound: float, margin: float, value_at_margin: float) -> float:
    return float(
        rewards.tolerance(
            value, bounds=(bound, math.inf), margin=margin, value_at_margin=value_at_margin, sigmoid="linear"
        )
    )


OUR_OWN: dict[tuple[str, str], Callable[..., Any]] = {
    ("walker", "flip"): _flip,
    ("quadruped", "stand"): _upright,
    ("quadruped", "jump"): _jump,
    ("quadruped", "escape"): _escape,
}
