"""The rows of one rollout, filled group by group: observations on the device, the numbers beside them on the host.

What the environments show now, on the learner's device; stacks of frames are put together here.

Of stacked observations a pool hands over the newest frame alone, so a quarter of the bytes crosses to the device:

    successor   next_obs = now[1:] + [newest frame]
    after it    now      = next_obs, or k times the first frame of a new episode
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from intrigue.envs.pool.pool import Pool, PoolStep
from intrigue.spaces import Array, Spaces
from intrigue.state import State
from intrigue.types import Extras, Transitions


@final
class RolloutBuffer:
    """Room for T steps of N environments. Made anew for every rollout, so that a batch handed out is never changed."""

    def __init__(self, time: int, num_envs: int, spaces: Spaces, skill_width: int, device: torch.device) -> None:
        self._lead, self._device = (time, num_envs), device
        action, kind = spaces.action, torch.from_numpy(np.zeros(0, spaces.obs.dtype)).dtype
        obs = (*self._lead, *spaces.obs.shape)
        self._tensors = {
            "obs": torch.empty(obs, dtype=kind, device=device),
            # Zeros, because a step in the air is saved before it has a successor.
            "next_obs": torch.zeros(obs, dtype=kind, device=device),
            "skill": torch.zeros((*self._lead, skill_width), device=device),
        }
        self._arrays: dict[str, np.ndarray[Any, Any]] = {
            "action": np.zeros((*self._lead, *action.shape), action.dtype),
            "reward": np.zeros(self._lead, np.float32),
            "terminated": np.zeros(self._lead, bool),
            "truncated": np.zeros(self._lead, bool),
            "valid": np.ones(self._lead, bool),
        }
        self._noted: dict[str, Tensor] = {}

    def write_action(self, t: int, rows: slice, obs: Tensor, skill: Tensor, action: Array, extras: Extras) -> None:
        """What some environments were shown and asked to do at time t."""
        self._tensors["obs"][t, rows], self._tensors["skill"][t, rows] = obs, skill
        self._arrays["action"][t, rows] = action
        for name, values in extras.items():
            if name not in self._noted:
                self._noted[name] = torch.zeros(
                    (*self._lead, *values.shape[1:]), dtype=values.dtype, device=values.device
                )
            self._noted[name][t, rows] = values

    def write_outcome(self, t: int, rows: slice, next_obs: Tensor, step: PoolStep) -> None:
        """What came of it."""
        self._tensors["next_obs"][t, rows] = next_obs
        for name in ("reward", "terminated", "truncated", "valid"):
            self._arrays[name][t, rows] = getattr(step, name)

    @property
    def obs(self) -> Tensor:
        """What was shown, (T, N, *obs)."""
        return self._tensors["obs"]

    def cut(self, t: int) -> None:
        """The environments were begun anew after time t: episodes that had not ended are cut off there."""
        self._arrays["truncated"][t] |= ~self._arrays["terminated"][t]

    def batch(self) -> tuple[Transitions, Extras]:
        """All of it, and what the agent noted."""
        uploaded = {name: torch.tensor(array, device=self._device) for name, array in self._arrays.items()}
        return Transitions(**self._tensors, **uploaded), self._noted

    def state_dict(self, count: int) -> State:
        """The first `count` rows."""
        if not count:
            return {"tensors": {}, "arrays": {}, "noted": {}}
        return {
            "tensors": {name: tensor[:count].clone() for name, tensor in self._tensors.items()},
            "arrays": {name: array[:count].copy() for name, array in self._arrays.items()},
            "noted": {name: tensor[:count].clone() for name, tensor in self._noted.items()},
        }

    def load_state_dict(self, state: State) -> None:
        """Put back what `state_dict` gave."""
        for name, tensor in state["tensors"].items():
            self._tensors[name][: len(tensor)] = tensor.to(self._device)
        for name, array in state["arrays"].items():
            self._arrays[name][: len(array)] = array
        for name, tensor in state["noted"].items():
            whole = torch.zeros((self._lead[0], *tensor.shape[1:]), dtype=tensor.dtype, device=self._device)
            whole[: len(tensor)] = tensor.to(self._device)
            self._noted[name] = whole


@final
class ObservationBuffer:
    """Observations to act on, (N, *obs)."""

    def __init__(self, pool: Pool, device: torch.device) -> None:
        self._stack = pool.stack
        shape, dtype = pool.spaces.obs.shape, pool.spaces.obs.dtype
        moved = shape[1:] if pool.stack else shape
        kind = torch.from_numpy(np.zeros(0, dtype)).dtype
        self.now = torch.zeros((pool.num_envs, *shape), dtype=kind, device=device)
        # Only from memory that the system cannot move does a GPU fetch by itself, while the host goes on.
        pinned = device.type == "cuda"
        self._staged = torch.zeros((pool.num_envs, *moved), dtype=kind, pin_memory=True) if pinned else None
        self._staging = None if self._staged is None else self._staged.numpy()

    def reset(self, first: Array) -> None:
        """Every environment shows its first observation."""
        shown = torch.tensor(first, device=self.now.device)
        self.now.copy_(shown.unsqueeze(1) if self._stack else shown)

    def restore(self, obs: Tensor) -> None:
        """Exactly these observations, as saved."""
        self.now.copy_(obs)

    def update(self, rows: slice, step: PoolStep) -> Tensor:
        """Take over what a step of these environments gave; their true successors, (n, *obs), as a new tensor."""
        newest = self._fetch(rows, step.next_obs)
        following = torch.cat([self.now[rows, 1:], newest.unsqueeze(1)], 1) if self._stack else newest
        self.now[rows] = following
        ended = np.flatnonzero(step.terminated | step.truncated | ~step.valid)
        if ended.size:
            first = torch.tensor(step.obs[ended], device=self.now.device)
            where = torch.from_numpy(ended + rows.start).to(self.now.device)
            self.now[where] = first.unsqueeze(1).expand(-1, self._stack, *first.shape[1:]) if self._stack else first
        return following

    def _fetch(self, rows: slice, array: Array) -> Tensor:
        # The pool writes over its arrays at its next step, so a tensor of our own is needed on any device.
        if self._staged is None or self._staging is None:
            return torch.tensor(array)
        # Whoever acts waits for the device, so what was staged here before has long arrived. NumPy copies in this
        # thread alone: torch would wake its own, which then spin on the cores that step the environments.
        self._staging[rows] = array
        return self._staged[rows].to(self.now.device, non_blocking=True)
