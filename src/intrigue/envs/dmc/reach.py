"""The Jaco arm of dm_control's manipulation tasks, reaching for a brick in one of four corners of the table (URLB).

    reward = tol(|tool centre - brick|; <= 0.05, margin 0.05, gaussian)

All is stock: arena, arm, hand, brick, exact features as observations. Starts: the brick at its corner, turned at random
and settled; the tool centre uniform in a box above the table, the hand pointing down with a random grasp.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any, NamedTuple, final

import dm_env
from dm_control import composer
from dm_control.entities import props
from dm_control.manipulation import reach
from dm_control.manipulation.shared import arenas, constants, observations, robots, workspaces

REACH_SECONDS = 10  # URLB
BRICK_Z = 0.001  # m, dm_control's: just off the table, from where the brick settles
BRICK_AT = {
    "reach_top_left": (-0.09, 0.09),
    "reach_top_right": (0.09, 0.09),
    "reach_bottom_left": (-0.09, -0.09),
    "reach_bottom_right": (0.09, -0.09),
}  # m, URLB
TOOL_BOX = workspaces.BoundingBox(lower=(-0.1, -0.1, 0.2), upper=(0.1, 0.1, 0.4))  # m, dm_control's and URLB's
SLACK = 1e-6  # s: the clock adds 0.002 five thousand times.


class Workspace(NamedTuple):
    """The table as dm_control's reaching task takes it."""

    target_bbox: Any
    tcp_bbox: Any
    arm_offset: Any


@final
class ReachEnvironment(composer.Environment):
    """Bit-identical to its parent and faster: the 20 physics steps are one call, observed once, at their end.

    The parent runs Python code for each of them, for hooks and delayed observations that this task does not have.
    """

    def __init__(self, task: Any, time_limit: float, random_state: int) -> None:
        # Recompiling for each episode takes 70 ms and gives the same model: the studs of this brick do not vary.
        super().__init__(task, random_state=random_state, recompile_mjcf_every_episode=False)
        self._seconds = time_limit
        self._substeps = task.physics_steps_per_control_step
        self._over = True

    def reset(self) -> Any:
        """The first time step of an episode."""
        first = super().reset()
        self._sensors = {
            name: each.observation_callable(self.physics, self.random_state)
            for name, each in self.task.observables.items()
            if each.enabled
        }
        self._over = False
        return first

    def step(self, action: Any) -> Any:
        """One control step, or a reset if the episode is over."""
        if self._over:
            return self.reset()
        physics = self.physics
        self.task.before_step(physics, action, self.random_state)
        physics.step(self._substeps)
        reward, discount = self.task.get_reward(physics), self.task.get_discount(physics)
        observation = OrderedDict((name, read()[None]) for name, read in self._sensors.items())  # A buffer of one.
        self._over = physics.time() >= self._seconds - SLACK
        kind = dm_env.StepType.LAST if self._over else dm_env.StepType.MID
        return dm_env.TimeStep(kind, reward, discount, observation)


def make_reach(task: str, seed: int, time_limit: float = math.inf) -> ReachEnvironment:
    """The environment of one corner."""
    return ReachEnvironment(make_reach_task(task), time_limit, seed)


def make_reach_task(task: str) -> Any:
    """dm_control's reaching task with the brick in one place."""
    corner = (*BRICK_AT[task], BRICK_Z)
    settings = observations.PERFECT_FEATURES
    return reach.Reach(
        arena=arenas.Standard(),
        arm=robots.make_arm(obs_settings=settings),
        hand=robots.make_hand(obs_settings=settings),
        prop=props.Duplo(observable_options=observations.make_options(settings, observations.FREEPROP_OBSERVABLES)),
        obs_settings=settings,
        workspace=Workspace(workspaces.BoundingBox(corner, corner), TOOL_BOX, robots.ARM_OFFSET),
        control_timestep=constants.CONTROL_TIMESTEP,
    )
