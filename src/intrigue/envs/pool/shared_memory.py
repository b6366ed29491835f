"""The arrays that environments write and the learner reads, in private or in shared memory.

Shared memory has no name: an anonymous file (`memfd_create`, or an unlinked temporary file) that workers inherit by
descriptor. It vanishes with the last process that maps it, whatever kills them.

    header: (index, stage) per worker, one page or more │ obs │ next_obs │ action │ reward │ flags │ place

What a pool must know of its environments before it can give them memory; travels from a worker as a state tree.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from dataclasses import asdict, dataclass, fields

import numpy as np

from intrigue.envs.base import EnvInfo
from intrigue.spaces import ActionSpec, Array, ObsSpec, Spaces, make_spaces
from intrigue.state import State


@dataclass(frozen=True, slots=True)
class Facts:
    """Encoded spaces and the rest of `EnvInfo`."""

    spaces: Spaces
    frames_per_step: int
    places: int
    can_snapshot: bool
    bait_action: int | None
    stack: int

    @property
    def moved(self) -> ObsSpec:
        """The part of an observation that travels: all of it, or the newest of its stacked frames."""
        obs = self.spaces.obs
        return ObsSpec(obs.kind, obs.shape[1:]) if self.stack else obs


def facts_of(described: EnvInfo) -> Facts:
    """The facts an environment states."""
    spaces = make_spaces(described.obs_space, described.action_space)
    if described.stack and spaces.obs.shape[0] != described.stack:
        raise ValueError(f"a stack of {described.stack} frames cannot have shape {spaces.obs.shape}")
    return Facts(
        spaces,
        described.frames_per_step,
        described.places,
        described.can_snapshot,
        described.bait_action,
        described.stack,
    )


def facts_to_state(facts: Facts) -> State:
    """The facts as a tree of plain values."""
    return asdict(facts)


def facts_from_state(state: State) -> Facts:
    """The facts that `facts_to_state` wrote."""
    obs, action = state["spaces"]["obs"], state["spaces"]["action"]
    spaces = Spaces(
        ObsSpec(obs["kind"], tuple(obs["shape"])),
        ActionSpec(action["kind"], tuple(action["sizes"]), tuple(action["low"]), tuple(action["high"])),
    )
    names = ("frames_per_step", "places", "can_snapshot", "bait_action", "stack")
    return Facts(spaces, **{name: state[name] for name in names})


ALIGNMENT = 64  # Bytes of a cache line, so that arrays of two workers share few lines.
STAGES = ("idle", "build", "reset", "step", "snapshot", "restore")


@dataclass(frozen=True, slots=True)
class Block:
    """Arrays of N environments, environment axis first."""

    obs: Array  # what to act on next: after an own reset, the first observation of the new episode
    next_obs: Array  # the true successor
    action: Array
    reward: Array  # float64, as the environment gave it
    terminated: Array
    truncated: Array
    place: Array  # int32, of the successor; -1 unknown

    def rows(self, share: range) -> Block:
        """The part of some neighboring environments."""
        return Block(*(getattr(self, each.name)[share.start : share.stop] for each in fields(self)))


def _shapes(facts: Facts, num_envs: int) -> list[tuple[tuple[int, ...], np.dtype[np.generic]]]:
    obs = ((num_envs, *facts.moved.shape), facts.moved.dtype)
    action = ((num_envs, *facts.spaces.action.shape), facts.spaces.action.dtype)
    per_env = [((num_envs,), np.dtype(kind)) for kind in (np.float64, np.bool_, np.bool_, np.int32)]
    return [obs, obs, action, *per_env]


def _aligned(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def private_block(facts: Facts, num_envs: int) -> Block:
    """A block of this process alone."""
    return Block(*(np.zeros(shape, dtype) for shape, dtype in _shapes(facts, num_envs)))


def open_memory(workers: int) -> int:
    """The descriptor of new anonymous memory that holds the header of this many workers."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("intrigue-pool")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, _header_size(workers))
    return descriptor


def map_header(descriptor: int, workers: int) -> memoryview:
    """The header as int32: two numbers per worker, the environment index and the position in STAGES."""
    return memoryview(mmap.mmap(descriptor, _header_size(workers))).cast("i")


def map_block(descriptor: int, workers: int, facts: Facts, num_envs: int) -> Block:
    """The shared block; whoever calls it first makes the memory large enough.

    The mapping lives as long as any array made from it: unmapping under a caller's array would crash the process.
    """
    shapes = _shapes(facts, num_envs)
    sizes = [_aligned(int(np.prod(shape)) * dtype.itemsize, ALIGNMENT) for shape, dtype in shapes]
    header = _header_size(workers)
    if os.fstat(descriptor).st_size < header + sum(sizes):
        os.ftruncate(descriptor, header + sum(sizes))
    memory = mmap.mmap(descriptor, sum(sizes), offset=header)
    offsets = np.cumsum([0, *sizes[:-1]]).tolist()
    return Block(
        *(np.ndarray(shape, dtype, memory, offset) for (shape, dtype), offset in zip(shapes, offsets, strict=True))
    )


def _header_size(workers: int) -> int:
    return _aligned(workers * 2 * 4, mmap.ALLOCATIONGRANULARITY)
