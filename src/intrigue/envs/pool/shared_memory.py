"""The arrays that environments write and the learner reads, and the specification they are allocated from.

A worker sends the `EnvSpec` of its environments as a state tree; the pool then sizes the `SharedArrays`, in private or
in shared memory. Shared memory has no name: an anonymous file (`memfd_create`, or an unlinked temporary file) that
workers inherit by descriptor. It is freed with the last process that maps it, whatever kills them.

    header: (index, stage) per worker, one page or more │ obs │ next_obs │ action │ reward │ flags │ place
"""

from __future__ import annotations

import mmap
import os
import tempfile
from dataclasses import dataclass, fields

import numpy as np

from intrigue.envs.base import EnvInfo
from intrigue.spaces import ActionSpec, Array, ObsSpec, Spaces, make_spaces
from intrigue.state import State


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """What a pool knows of its environments: encoded spaces and the rest of `EnvInfo`."""

    spaces: Spaces
    frames_per_step: int
    places: int
    can_snapshot: bool
    distractor_action: int | None
    stack: int

    @property
    def transferred_obs(self) -> ObsSpec:
        """The part of an observation that is written to the arrays: all of it, or the newest of stacked frames."""
        obs = self.spaces.obs
        return ObsSpec(obs.kind, obs.shape[1:]) if self.stack else obs


def make_env_spec(info: EnvInfo) -> EnvSpec:
    """The specification of an environment, its spaces encoded."""
    spaces = make_spaces(info.obs_space, info.action_space)
    if info.stack and spaces.obs.shape[0] != info.stack:
        raise ValueError(f"a stack of {info.stack} frames cannot have shape {spaces.obs.shape}")
    return EnvSpec(
        spaces,
        info.frames_per_step,
        info.places,
        info.can_snapshot,
        info.distractor_action,
        info.stack,
    )


def spec_from_state(state: State) -> EnvSpec:
    """The specification from its `dataclasses.asdict`, as a worker sends it."""
    obs, action = state["spaces"]["obs"], state["spaces"]["action"]
    spaces = Spaces(
        ObsSpec(obs["kind"], tuple(obs["shape"])),
        ActionSpec(action["kind"], tuple(action["sizes"]), tuple(action["low"]), tuple(action["high"])),
    )
    names = ("frames_per_step", "places", "can_snapshot", "distractor_action", "stack")
    return EnvSpec(spaces, **{name: state[name] for name in names})


ALIGNMENT = 64  # Bytes of a cache line, so that arrays of two workers share few lines.
STAGES = ("idle", "build", "reset", "step", "snapshot", "restore")


@dataclass(frozen=True, slots=True)
class SharedArrays:
    """Arrays of N environments, environment axis first."""

    obs: Array  # what to act on next: after a reset, the first observation of the new episode
    next_obs: Array  # the true successor
    action: Array
    reward: Array  # float64, as the environment gave it
    terminated: Array
    truncated: Array
    place: Array  # int32, of the successor; -1 unknown

    def rows(self, indices: range) -> SharedArrays:
        """Views of these environments' rows."""
        return SharedArrays(*(getattr(self, each.name)[indices.start : indices.stop] for each in fields(self)))


def _shapes(spec: EnvSpec, num_envs: int) -> list[tuple[tuple[int, ...], np.dtype[np.generic]]]:
    obs = ((num_envs, *spec.transferred_obs.shape), spec.transferred_obs.dtype)
    action = ((num_envs, *spec.spaces.action.shape), spec.spaces.action.dtype)
    per_env = [((num_envs,), np.dtype(kind)) for kind in (np.float64, np.bool_, np.bool_, np.int32)]
    return [obs, obs, action, *per_env]


def _aligned(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def allocate_arrays(spec: EnvSpec, num_envs: int) -> SharedArrays:
    """Arrays of this process alone."""
    return SharedArrays(*(np.zeros(shape, dtype) for shape, dtype in _shapes(spec, num_envs)))


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


def map_arrays(descriptor: int, workers: int, spec: EnvSpec, num_envs: int) -> SharedArrays:
    """The shared arrays; the first call makes the memory large enough.

    The mapping lives as long as any array made from it: unmapping under a caller's array would crash the process.
    """
    shapes = _shapes(spec, num_envs)
    sizes = [_aligned(int(np.prod(shape)) * dtype.itemsize, ALIGNMENT) for shape, dtype in shapes]
    header = _header_size(workers)
    if os.fstat(descriptor).st_size < header + sum(sizes):
        os.ftruncate(descriptor, header + sum(sizes))
    memory = mmap.mmap(descriptor, sum(sizes), offset=header)
    offsets = np.cumsum([0, *sizes[:-1]]).tolist()
    return SharedArrays(
        *(np.ndarray(shape, dtype, memory, offset) for (shape, dtype), offset in zip(shapes, offsets, strict=True))
    )


def _header_size(workers: int) -> int:
    return _aligned(workers * 2 * 4, mmap.ALLOCATIONGRANULARITY)
