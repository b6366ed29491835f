"""The actions of S seeds, one call for all of them.

On a GPU they are computed beside the update, in a stream of their own: observations and actions travel through memory
that is pinned, the whole step is one CUDA graph, and the host waits for the actions alone. `ready` is the
moment after which weights are to be read.

Agents that overlap explore with a copy of the actor's weights, while an update changes those; with `follow` the copy is
first made anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
import torch
from torch import Tensor

from intrigue.ops.execution import CudaGraph
from intrigue.ops.philox import DeviceRng
from intrigue.spaces import Array
from intrigue.training.off_policy import ReplayParts
from intrigue.training.stacked.modules import Stacked, fuse_for_seeds

RANK = -3  # a GPU begins these before whatever an update has waiting: environments stand still until they are there


@final
class StackedActor:
    """Chooses the next actions of all seeds' environments, (S, N, A)."""

    def __init__(
        self, parts: Sequence[ReplayParts], agents: Stacked, device: torch.device, *, captured: bool, compiled: bool
    ) -> None:
        self._agents = agents
        tensors = agents.tensors()
        self._behind = [each for name, each in tensors.items() if name.startswith("behaviour.")]
        self._ahead = [each for name, each in tensors.items() if name.startswith("actor.")]
        pool = parts[0].collector.pool
        shape = (len(parts), pool.num_envs)
        cuda = device.type == "cuda"
        seen, done = pool.spaces.obs, pool.spaces.action
        self._seen_here = torch.zeros(*shape, *seen.shape, dtype=_dtype(seen.dtype), pin_memory=cuda)
        self._done_here = torch.zeros(*shape, *done.shape, dtype=_dtype(done.dtype), pin_memory=cuda)
        self._seen, self._done = self._seen_here.to(device), self._done_here.to(device)
        self._noise = DeviceRng([each.streams["act"] for each in parts], self._done.shape[1:], "normal")
        self._skill = torch.zeros(*shape, 0, device=device)
        self.obs: Array = self._seen_here.numpy()
        """What is acted on, (S, N, *obs); to be written before `begin`."""
        self._stream = torch.cuda.Stream(device, RANK) if cuda else None
        self._explored = fuse_for_seeds(self._plain_explored) if compiled else self._plain_explored
        self._rounds = {True: self._follow_and_act, False: self._act}
        if captured:
            drawn = self._noise.graph_generators
            self._rounds = {
                True: CudaGraph(
                    self._follow_and_act, drawn, lambda: (*self._behind, *self._noise.mutated_tensors()), priority=RANK
                ),
                False: CudaGraph(self._act, drawn, self._noise.mutated_tensors, priority=RANK),
            }

    @property
    def overlap(self) -> bool:
        """Whether what explores is a copy."""
        return bool(self._behind)

    def begin(self, ready: torch.cuda.Event | None, *, follow: bool) -> None:
        """Begin to choose actions for `obs`, which must not be written to before `actions`."""
        self._noise.load()
        if self._stream is None:
            self._rounds[follow]()
            return
        with torch.cuda.stream(self._stream):
            if ready is not None:
                self._stream.wait_event(ready)
            self._rounds[follow]()

    def actions(self) -> Array:
        """What `begin` began, valid until it is called again."""
        if self._stream is not None:
            self._stream.synchronize()
        return self._done_here.numpy()

    def synchronize(self) -> None:
        """Let the seeds' generators stand where they would if they had drawn the noise themselves."""
        self._noise.store()

    @torch.no_grad()
    def follow(self) -> None:
        """Explore as the actors are now, from here on."""
        torch._foreach_copy_(self._behind, self._ahead)

    def _follow_and_act(self) -> None:
        self.follow()
        self._act()

    @torch.no_grad()
    def _act(self) -> None:
        self._seen.copy_(self._seen_here, non_blocking=True)
        self._done.copy_(self._explored(self._noise.draw()))
        self._done_here.copy_(self._done, non_blocking=True)

    def _plain_explored(self, drawn: Tensor) -> Tensor:
        actions: Tensor = self._agents.call("act_with_drawn_noise", self._seen, self._skill, drawn)
        return actions


def _dtype(kind: np.dtype[np.generic]) -> torch.dtype:
    return torch.from_numpy(np.zeros(0, kind)).dtype
