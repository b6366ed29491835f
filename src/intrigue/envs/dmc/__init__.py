"""DeepMind Control through dm_control: `dmc/walker_run`, the whole suite, URLB's tasks, and domains without a reward.

    observation   the task's numbers in dm_control's order, flat float32; or with `pixels` the last three pictures
    action        numbers in [-1, 1], scaled to the actuators' bounds
    reward        the task's, between 0 and 1 per frame; always 0 in `dmc/walker`, `dmc/quadruped` and `dmc/jaco`
    episode       cut off (truncated) at the time limit; nothing ever terminates, as in URLB (arXiv:2110.15191)

Resume is exact to the bit (`snapshot`). Needs the extra `dmc`; states need no OpenGL. Where the simulation diverges
the run stops with the seed and the step; `max_divergences` of them may instead end their episode.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import gymnasium as gym
import numpy as np

from intrigue.envs.base import Env, EnvInfo, Step
from intrigue.envs.dmc.names import PRIMAL, check_name, split_name
from intrigue.envs.pool.checks import Violation
from intrigue.envs.registry import register_env
from intrigue.fields import NonNegativeInt, PositiveInt
from intrigue.spaces import Array
from intrigue.state import State

if TYPE_CHECKING:
    from intrigue.envs.dmc.camera import Camera

SIDE = 84  # Pixels, as in URLB.
VIDEO = (240, 320)  # Height and width of what `render` gives.
CAMERAS: dict[str, int | str] = {"quadruped": 2, "jaco": "front_close"}  # URLB's; the first camera elsewhere.
STEPS_WITHOUT_LIMIT = 1000  # Ours, for tasks that have no time limit (lqr): the suite's usual length.
UNBOUNDED = 1e9  # dm_control writes 1e10 where an actuator has no bound; such a number is passed on as it is.
DRAWN_MODELS = ("lqr",)  # Domains whose model depends on the seed.


@dataclass(frozen=True)
class DmcConfig:
    """Settings of `dmc`."""

    action_repeat: PositiveInt = 1  # URLB: 1 for states, 2 for pixels
    max_episode_steps: NonNegativeInt = 0  # agent steps; 0: the task's own limit
    pixels: bool = False  # 84 x 84 colour pictures instead of states; needs OpenGL
    frame_stack: PositiveInt = 3  # pictures in one observation, with pixels; URLB
    stagger: bool = False  # shorten each environment's first episode, so that not all end together; URLB: one only
    max_divergences: NonNegativeInt = 0  # diverged episodes an environment may cut off before the run is stopped; ours


@register_env("dmc", config=DmcConfig)
@final
class DeepMindControl(Env):
    """One task. dm_control is imported when it is built, so that names can be checked without it."""

    examples = ("walker_run", "point_mass_hard")

    def __init__(self, cfg: DmcConfig, name: str, render: bool = False) -> None:
        from intrigue.envs.dmc.fast_step import Flattener, import_tasks

        self._cfg = cfg
        self._domain, self._task, self._rewarded = split_name(name)
        self._tasks = import_tasks()
        self._camera = self._make_camera(SIDE, SIDE) if cfg.pixels else None
        self._video = self._make_camera(*VIDEO) if render else None
        self._time, self._seed, self._diverged = 0, 0, 0
        self._build()
        # The first reset also compiles the arm's model, which draws random numbers once, and creates its physics.
        self._flatten = Flattener(self._dm.reset().observation)
        self._use_fast_step()
        states = gym.spaces.Box(-np.inf, np.inf, (self._flatten.size,), np.float32)
        pictures = gym.spaces.Box(0, 255, (3 * cfg.frame_stack, SIDE, SIDE), np.uint8)
        seen = pictures if cfg.pixels else states
        self._obs: Array = np.zeros(seen.shape, seen.dtype)
        self.info = EnvInfo(
            seen,
            gym.spaces.Box(-1.0, 1.0, self._low.shape, np.float32),
            frames_per_step=cfg.action_repeat,
        )

    @classmethod
    def check_name(cls, name: str) -> list[str]:
        return check_name(name)

    @classmethod
    def has_reward(cls, name: str) -> bool:
        """None in the domains without a task."""
        return name not in PRIMAL

    def reset(self, seed: int | None) -> Array:
        if seed is not None:
            self._seed, self._diverged = seed, 0
            if self._domain in DRAWN_MODELS:
                self._build()
                self._use_fast_step()
            else:
                self._tasks.get_random_state(self._dm).seed(seed)
        self._time = 0
        try:
            first = self._flatten(self._dm.reset().observation)
        except self._tasks.control.PhysicsError as error:
            raise self._divergence(error) from error
        self._obs = first if self._camera is None else np.concatenate([self._frame()] * self._cfg.frame_stack)
        return self._obs

    def step(self, action: Array) -> Step:
        try:
            reward, over, last = self._advance(self._scale(action))
        except (self._tasks.control.PhysicsError, FloatingPointError) as error:
            self._diverged += 1
            if self._diverged > self._cfg.max_divergences:
                raise self._divergence(error) from error
            warnings.warn(f"{self._divergence(error)} Its episode is cut off.", RuntimeWarning, stacklevel=2)
            return Step(self._obs, 0.0, False, True)
        self._obs = last if self._camera is None else np.concatenate([self._obs[3:], self._frame()])
        return Step(self._obs, reward if self._rewarded else 0.0, False, over)

    def shorten_first_episode(self, fraction: float) -> None:
        if self._cfg.stagger:
            self._time = int(fraction * self._limit)

    def snapshot(self) -> State:
        from intrigue.envs.dmc.snapshot import save_env

        own = {"time": self._time, "seed": self._seed, "diverged": self._diverged, "obs": self._obs.copy()}
        return {**own, "dm": save_env(self._dm)}

    def restore(self, state: State) -> None:
        from intrigue.envs.dmc.snapshot import load_env

        self._time, self._seed, self._diverged = state["time"], state["seed"], state["diverged"]
        self._obs = np.array(state["obs"])
        if self._domain in DRAWN_MODELS:
            self._build()
            self._use_fast_step()
        load_env(self._dm, state["dm"])

    def render(self) -> Array:
        if self._video is None:
            self._video = self._make_camera(*VIDEO)
        return self._video.picture(self._dm.physics)

    def close(self) -> None:
        for camera in (self._camera, self._video):
            if camera is not None:
                camera.close()
        self._dm.close()

    def _build(self) -> None:
        """Build the environment of the present seed, without its time limit: steps are counted here, and saved."""
        self._dm = self._tasks.make_dm_env(self._domain, self._task, self._seed, limited=False)
        if not self._rewarded:
            self._dm.task.get_reward = _no_reward
        bounds = self._dm.action_spec()
        bounded = bounds.maximum < UNBOUNDED
        self._low, self._high = np.where(bounded, bounds.minimum, -1.0), np.where(bounded, bounds.maximum, 1.0)
        self._range = self._high - self._low
        steps = self._tasks.episode_seconds(self._domain, self._task) / self._dm.control_timestep()
        # Seconds over steps of a fraction of one: rounded, since 9.999999 steps are ten.
        task_limit = round(steps) if math.isfinite(steps) else STEPS_WITHOUT_LIMIT
        self._limit = self._cfg.max_episode_steps * self._cfg.action_repeat or task_limit

    def _use_fast_step(self) -> None:
        """Faster steps from here on, with bit-identical results."""
        from intrigue.envs.dmc.fast_step import cache_name_lookups, use_fast_step

        cache_name_lookups(self._dm.physics)
        use_fast_step(self._dm._physics)

    def _advance(self, control: Array) -> tuple[float, bool, Array]:
        """The reward of one agent step, whether its episode is over, and the state it ends in."""
        reward, over = 0.0, False
        for _ in range(self._cfg.action_repeat):
            result = self._dm.step(control)
            self._time += 1
            reward += float(result.reward)
            over = bool(result.last()) or self._time >= self._limit
            if over:
                break
        last = self._flatten(result.observation)
        if not (math.isfinite(reward) and self._flatten.is_finite(last)):
            raise FloatingPointError("the observation or the reward is not finite")
        return reward, over, last

    def _scale(self, action: Array) -> Array:
        """Actuator controls of an action: -1 is the lower bound, 1 the upper."""
        # In place: run at every step, where allocating an array per line would cost as much as all lines here.
        scaled: Array = np.maximum(action, -1.0, dtype=np.float64)
        np.minimum(scaled, 1.0, out=scaled)
        scaled += 1.0
        scaled /= 2.0
        scaled *= self._range
        scaled += self._low
        return np.minimum(scaled, self._high, out=scaled)

    def _frame(self) -> Array:
        assert self._camera is not None
        channels_first: Array = self._camera.picture(self._dm.physics).transpose(2, 0, 1)
        return channels_first

    def _make_camera(self, height: int, width: int) -> Camera:
        from intrigue.envs.dmc.camera import Camera

        return Camera(CAMERAS.get(self._domain, 0), height, width)

    def _divergence(self, error: Exception) -> Divergence:
        return Divergence(self._seed, self._time, str(error), self._cfg.max_divergences)


class Divergence(Violation):
    """The simulation diverged; becomes an `EnvironmentFault` with the environment's id."""

    def __init__(self, seed: int, step: int, cause: str, allowed: int) -> None:
        Exception.__init__(
            self,
            f"the physics diverged after step {step} of an episode (seed {seed}): {cause.splitlines()[0].rstrip('.')}. "
            f"Accepted: a simulation that stays finite. Raise max_divergences, now {allowed}, to cut such episodes "
            "off instead, or take another seed.",
        )


def _no_reward(physics: Any) -> float:
    """Replaces the reward of a task that is not used: computing it takes a seventh of a step."""
    del physics
    return 0.0
