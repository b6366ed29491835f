"""The actions of S seeds, one call for all of them.

On a GPU they are computed beside the update, in a stream of their own: observations and actions travel through memory
that is pinned for it, and nobody waits for anything but the actions. `ready` is the moment after which the weights
that explore are to be read: behind the last update, or, where agents overlap, before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from intrigue.cohort.lanes import Lanes
from intrigue.cohort.stack import Stacked
from intrigue.execution import Captured, fuse_kernels
from intrigue.rng import Rng, normal
from intrigue.spaces import Array
from intrigue.training.replay import ReplayParts


@final
class Explorers:
    """Chooses the next actions of all seeds' environments, (S, N, A)."""

    def __init__(
        self, parts: Sequence[ReplayParts], agents: Stacked, device: torch.device, *, captured: bool, compiled: bool
    ) -> None:
        self._agents = agents
        self._lanes = Lanes([each.streams["act"] for each in parts])
        pool = parts[0].collector.pool
        shape = (len(parts), pool.num_envs)
        cuda = device.type == "cuda"
        seen, done = pool.spaces.obs, pool.spaces.action
        self._seen_here = torch.zeros(*shape, *seen.shape, dtype=_dtype(seen.dtype), pin_memory=cuda)
        self._done_here = torch.zeros(*shape, *done.shape, dtype=_dtype(done.dtype), pin_memory=cuda)
        self._seen, self._done = self._seen_here.to(device), self._done_here.to(device)
        self._skill = torch.zeros(*shape, 0, device=device)
        self.obs: Array = self._seen_here.numpy()
        """What is acted on, (S, N, *obs); to be written before a call."""
        self._stream = torch.cuda.Stream(device, priority=-1) if cuda else None
        self._explored = fuse_kernels(self._plain_explored) if compiled else self._plain_explored
        self._captured = Captured(self._act, self._lanes.generators, tuple) if captured else None

    def __call__(self, ready: torch.cuda.Event | None) -> Array:
        """The actions for `obs`, valid until the next call."""
        if self._stream is None:
            self._seen.copy_(self._seen_here)
            self._act()
            return self._done.numpy()
        with torch.cuda.stream(self._stream):
            if ready is not None:
                self._stream.wait_event(ready)
            self._seen.copy_(self._seen_here, non_blocking=True)
            if self._captured is None:
                self._act()
            else:
                self._captured()
            self._done_here.copy_(self._done, non_blocking=True)
        self._stream.synchronize()
        return self._done_here.numpy()

    @torch.no_grad()
    def _act(self) -> None:
        drawn = self._agents.call(_normal, self._done.to(self._seen.dtype), self._lanes)
        self._done.copy_(self._explored(drawn))

    def _plain_explored(self, drawn: Tensor) -> Tensor:
        actions: Tensor = self._agents.call("explored", self._seen, self._skill, drawn)
        return actions


def _normal(agent: nn.Module, like: Tensor, rng: Rng) -> Tensor:
    del agent
    return normal(like.shape, rng, like.dtype)


def _dtype(kind: np.dtype[np.generic]) -> torch.dtype:
    return torch.from_numpy(np.zeros(0, kind)).dtype
