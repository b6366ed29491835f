"""What the environments show now, on the learner's device; stacks of frames are put together here.

Of stacked observations a pool hands over the newest frame alone, so a quarter of the bytes crosses to the device:

    successor   next_obs = now[1:] + [newest frame]
    after it    now      = next_obs, or k times the first frame of a new episode
"""

from __future__ import annotations

from typing import final

import numpy as np
import torch
from torch import Tensor

from intrigue.envs.pool.pool import Pool, PoolStep
from intrigue.spaces import Array


@final
class Sight:
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

    def begin(self, first: Array) -> None:
        """Every environment shows its first observation."""
        shown = torch.tensor(first, device=self.now.device)
        self.now.copy_(shown.unsqueeze(1) if self._stack else shown)

    def put(self, obs: Tensor) -> None:
        """Exactly these observations, as saved."""
        self.now.copy_(obs)

    def advance(self, rows: slice, step: PoolStep) -> Tensor:
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
