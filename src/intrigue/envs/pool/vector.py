"""Any Gymnasium vector environment as a pool, in each of Gymnasium's three autoreset modes.

    NEXT_STEP   the step after an end ignores its action and resets: that row is not a step, `valid` is False there
    SAME_STEP   the step that ends also resets: the true successor is in `final_obs`
    DISABLED    the pool resets ended episodes itself, with `reset_mask`

In all three `next_obs` is the true successor of every valid row. See Gymnasium's `AutoresetMode`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import iterate

from intrigue.envs.base import Env
from intrigue.envs.pool.checks import Violation, check_actions, describe_non_finite, describe_when, make_fault
from intrigue.envs.pool.pool import Pool, PoolStep
from intrigue.errors import CheckpointError, ConfigError, EnvironmentFault, RunError
from intrigue.seeding import derive_seed
from intrigue.spaces import ActionCodec, Array, ObsCodec, Spaces
from intrigue.state import State

# Gymnasium's names in small letters; its enum exists only from 1.1 on.
NEXT_STEP, SAME_STEP, DISABLED = "nextstep", "samestep", "disabled"
# Names of the true successor in a SAME_STEP environment's second return: Gymnasium from 1.0, and up to 0.29.
FINAL_KEYS = ("final_obs", "final_observation")


def autoreset_mode(metadata: Mapping[str, Any]) -> str:
    """The mode a vector environment declares, as enum or text; next step, Gymnasium's default, where it does not."""
    declared = metadata.get("autoreset_mode")
    text = str(getattr(declared, "value", declared)).replace("_", "").lower()
    return text if text in (SAME_STEP, DISABLED) else NEXT_STEP


def make_vector_pool(env_id: str, family: type[Env], cfg: Any, name: str, num_envs: int, seed: int) -> VectorPool:
    """The pool of a family's own vectorized form."""
    problems = family.check_name(name)
    env = None if problems else family.make_native_vector(cfg, name, num_envs)
    if env is None:
        reason = " ".join(problems) or "it has no vectorized form of its own. Leave native_vector off."
        raise ConfigError(f"env: {env_id}: {reason}")
    return VectorPool(env_id, env, seed)


@final
class VectorPool(Pool):
    """A Gymnasium vector environment, stepped in this process and without a time limit. It cannot be saved."""

    def __init__(self, env_id: str, env: VectorEnv[Any, Any, Any], seed: int) -> None:
        self.env_id = env_id
        self.num_envs = env.num_envs
        self._env = env
        self._seed = seed
        self._mode = autoreset_mode(env.metadata)
        self._obs_codec = ObsCodec(env.single_observation_space)
        self._action_codec = ActionCodec(env.single_action_space)
        self.spaces = Spaces(self._obs_codec.spec, self._action_codec.spec)
        self.frames_per_step = 1
        self.places = 0
        self.can_snapshot = False
        self.groups = (slice(0, self.num_envs),)
        self._action: Array | None = None
        self._place = np.full(self.num_envs, -1, dtype=np.int32)
        self._ended = np.zeros(self.num_envs, dtype=bool)
        self._steps = 0
        self._restarts = 0
        self._started = False
        self._closed = False

    def reset(self) -> Array:
        self._refuse_while_stepping()
        self._steps = 0
        return self._begin("env")

    def step(self, action: Array) -> PoolStep:
        self.send(0, action)
        return self.receive(0)

    def send(self, group: int, action: Array) -> None:
        if self._closed or not self._started:
            raise RunError(f"the pool of {self.env_id} is closed or has not begun. Call reset() on an open pool first.")
        self._refuse_while_stepping()
        # A copy: the caller may overwrite its array before the step is taken.
        self._action = check_actions(action, self.spaces.action, self.num_envs).copy()

    def receive(self, group: int) -> PoolStep:
        if self._closed or self._action is None:
            raise RunError(f"the pool of {self.env_id} is not being stepped. Call send({group}, action) first.")
        action, self._action = self._action, None
        self._steps += 1
        try:
            return self._step(action)
        except EnvironmentFault:
            raise
        except Exception as error:
            raise make_fault(self.env_id, "unknown (vectorized)", describe_when("step", self._steps), error) from error

    def snapshot(self) -> State:
        self._refuse_while_stepping()
        return {"num_envs": self.num_envs, "steps": self._steps, "restarts": self._restarts}

    def restore(self, state: State) -> Array:
        self._refuse_while_stepping()
        if state["num_envs"] != self.num_envs or "envs" in state:
            raise CheckpointError(
                f"the saved state is not of {self.num_envs} vectorized environments that cannot be saved. "
                "Restore into the pool that was saved."
            )
        self._steps = state["steps"]
        self._restarts = state["restarts"] + 1
        self.restarted = self.num_envs
        return self._begin("restart", self._restarts)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._env.close()

    def _refuse_while_stepping(self) -> None:
        if self._action is not None:
            raise RunError(f"group 0 of {self.env_id} is being stepped. Call receive(0) first.")

    def _begin(self, *purpose: str | int) -> Array:
        # One seed, not a list: every vector environment takes a single one, and spreads it over its rows.
        obs, _ = self._env.reset(seed=derive_seed(self._seed, *purpose, 0))
        self._ended[:] = False
        self._started = True
        encoded = self._encode(obs)
        self._check(encoded, np.zeros(self.num_envs))
        return encoded

    def _step(self, action: Array) -> PoolStep:
        decoded = np.stack([self._action_codec.decode(each) for each in action])
        raw_obs, reward, terminated, truncated, extras = self._env.step(decoded)
        obs = self._encode(raw_obs)
        reward = np.array(reward, dtype=np.float64)
        terminated, truncated = np.array(terminated, dtype=bool), np.array(truncated, dtype=bool)
        valid = np.ones(self.num_envs, dtype=bool)
        next_obs = obs.copy()
        if self._mode == NEXT_STEP:
            valid = ~self._ended
            reward[self._ended] = 0.0
            terminated &= valid
            truncated &= valid
        ended = terminated | truncated
        if self._mode == SAME_STEP:
            for index in np.flatnonzero(ended):
                next_obs[index] = self._final_obs(extras, int(index))
        elif self._mode == DISABLED and ended.any():
            fresh, _ = self._env.reset(options={"reset_mask": ended.copy()})
            obs[ended] = self._encode(fresh)[ended]
        self._ended = ended
        self._check(obs, reward)
        self._check(next_obs, reward)
        return PoolStep(obs, next_obs, reward, terminated, truncated, valid, self._place)

    def _final_obs(self, extras: Mapping[str, Any], index: int) -> Array:
        for key in FINAL_KEYS:
            if extras.get(key) is not None and (row := _row(extras[key], index)) is not None:
                return self._obs_codec.encode(row)
        missing = Violation(" or ".join(FINAL_KEYS), "the successor of an ended episode (SAME_STEP)", "nothing")
        raise make_fault(self.env_id, index, describe_when("step", self._steps), missing)

    def _encode(self, obs: Any) -> Array:
        if isinstance(self._env.single_observation_space, gym.spaces.Box):
            encoded = self._obs_codec.encode_batch(obs, lead=1)
        else:
            encoded = np.stack([self._obs_codec.encode(row) for row in iterate(self._env.observation_space, obs)])
        expected = (self.num_envs, *self.spaces.obs.shape)
        if encoded.shape != expected:
            raise Violation("observation", f"shape {expected}", f"shape {encoded.shape}")
        # The environment may reuse its buffer; what we returned stays unchanged until the next call.
        return np.array(encoded, dtype=self.spaces.obs.dtype)

    def _check(self, obs: Array, reward: Array) -> None:
        for index, value in enumerate(reward):
            if not np.isfinite(value):
                cause = Violation("reward", "one finite real number", repr(float(value)))
                raise make_fault(self.env_id, index, describe_when("step", self._steps), cause)
        if not np.isfinite(obs).all():
            index = int(np.flatnonzero(~np.isfinite(obs.reshape(self.num_envs, -1)).all(axis=1))[0])
            cause = Violation("observation", "finite numbers", describe_non_finite(obs[index]))
            raise make_fault(self.env_id, index, describe_when("step", self._steps), cause)


def _row(batch: Any, index: int) -> Any:
    """One environment's part of a batch: an object array, a full array, or a mapping of such."""
    if isinstance(batch, Mapping):
        return {key: _row(part, index) for key, part in batch.items() if not key.startswith("_")}
    return batch[index]
