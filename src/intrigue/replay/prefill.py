"""Writes recorded episodes into the replay buffer of a new run, before its first step.

Each of the buffer's N lanes, one per environment, takes the next episode when it has reached the end of one. Lanes that
finish early are padded with rows that are not valid, less than one episode each (none with one environment). The rows
are those that stepping through the episodes would have written.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from intrigue.errors import CheckpointError, ConfigError, Problem
from intrigue.replay.buffer import ReplayBuffer
from intrigue.replay.recording import Recording, Recordings
from intrigue.spaces import ActionSpec, Array, Spaces

OPTION = "--replay-from"


def prefill_replay(replay: ReplayBuffer, recordings: Recordings, frames: Array) -> None:
    """Fill an empty buffer as if its environments had played these episodes and now restarted in `frames`.

    Raises:
        ConfigError: they do not fit into it.
        CheckpointError: a file is damaged.
    """
    store, ring = replay.store, replay.store.ring
    if ring.head:
        raise ValueError("only an empty replay buffer can be prefilled")
    lanes = _Lanes(recordings.lengths, store.num_envs)
    if (rows := lanes.head) > ring.size:
        text = f"{recordings.transitions} transitions need {rows} rows, more than the replay has. "
        raise ConfigError([Problem(OPTION, text + f"Use --agent.capacity {rows} or more.")])
    for index, recording in enumerate(recordings):
        converted = _convert(recording, replay.spaces, store.stack, index)
        states, end = lanes.rows(index)
        newest = converted.observations[:, -1] if store.stack else converted.observations
        following = np.append(states[1:], end)
        last = np.arange(len(states)) == len(states) - 1
        ring.write(
            states,
            {
                "frame": newest[:-1],
                "back": np.diff(states, prepend=states[0]).astype(np.int32),
                "ahead": (following - states).astype(np.int32),
                "action": converted.actions,
                "reward": converted.rewards,
                "skill": converted.skills,
                "terminated": last & converted.terminated,
                "truncated": last & converted.truncated,
                "valid": np.ones(len(states), dtype=bool),
            },
        )
        ring.write(
            np.array([end]),
            {"frame": newest[-1:], "back": np.array([end - states[-1]], np.int32), "end": np.ones(1, dtype=bool)},
        )
    for rows_of_lane in lanes.padding():
        ring.write(rows_of_lane[:-1], {"ahead": np.diff(rows_of_lane).astype(np.int32)})
    ring.write(lanes.head - store.num_envs + np.arange(store.num_envs), {"frame": frames})
    replay.load_prefilled(lanes.head, lanes.steps)


class _Lanes:
    """Which rows of the ring each episode takes.

    Step t has N rows from base(t) on, one for each lane; the ends of step t follow them in order of lanes.
    """

    def __init__(self, lengths: Sequence[int], lanes: int) -> None:
        self.lengths, self.count = lengths, lanes
        free = [(0, lane) for lane in range(lanes)]  # (first free step, lane), a heap
        self._where: list[tuple[int, int]] = []  # first step and lane of each episode
        for length in lengths:
            first, lane = heapq.heappop(free)
            self._where.append((first, lane))
            heapq.heappush(free, (first + length, lane))
        self._free = sorted(free, key=lambda each: each[1])
        self.steps = max(step for step, _ in free)
        ends = np.zeros(self.steps + 1, dtype=np.int64)
        ended: dict[int, list[int]] = {}
        for (first, lane), length in zip(self._where, lengths, strict=True):
            ends[first + length] += 1
            ended.setdefault(first + length - 1, []).append(lane)
        self._ended = {step: sorted(lanes_of_step) for step, lanes_of_step in ended.items()}
        self._base = np.arange(self.steps + 1) * lanes + np.cumsum(ends)
        self.head = int(self._base[-1]) + lanes
        """All rows, the open ones included."""

    def rows(self, index: int) -> tuple[Array, int]:
        """The rows of an episode's states, and that of its last successor."""
        first, lane = self._where[index]
        last = first + self.lengths[index] - 1
        end = int(self._base[last]) + self.count + self._ended[last].index(lane)
        return self._base[first : last + 1] + lane, end

    def padding(self) -> list[Array]:
        """For each padded lane, its rows that are not valid and the open row after them."""
        return [self._base[free:] + lane for free, lane in self._free if free < self.steps]


def _convert(recording: Recording, spaces: Spaces, stack: int, index: int) -> Recording:
    """The episode in the run's data types.

    Raises:
        ConfigError: it has other shapes.
        CheckpointError: it holds values that no environment with these spaces produces.
    """
    skills = recording.skills if spaces.skill else recording.skills[:, :0]
    expected = {
        "observations": (spaces.obs.shape, recording.observations.shape[1:]),
        "actions": (spaces.action.shape, recording.actions.shape[1:]),
        "skills": ((spaces.skill,), skills.shape[1:]),
    }
    wrong = [
        f"its {what} have shape {actual}, the run has {own}"
        for what, (own, actual) in expected.items()
        if actual != own
    ]
    dtype = recording.observations.dtype
    if dtype != np.uint8 if spaces.obs.kind == "pixels" else dtype.kind != "f":
        wrong.append(f"its observations are {dtype}, the run has {spaces.obs.dtype}")
    if (recording.actions.dtype.kind == "f") != (spaces.action.kind == "continuous"):
        wrong.append(f"its actions are {recording.actions.dtype}, the run has {spaces.action.dtype}")
    if wrong:
        raise ConfigError([Problem(OPTION, f"episode {index} does not fit: {'; '.join(wrong)}.")])
    if spaces.action.kind != "continuous" and not _actions_in_range(recording.actions, spaces.action):
        text = f"episode {index} does not fit: it has actions other than 0 to {max(spaces.action.sizes) - 1}."
        raise ConfigError([Problem(OPTION, text)])
    if stack and not _is_frame_stack(recording.observations):
        raise CheckpointError(f"episode {index}: an observation is not the one before, moved on by a frame")
    return Recording(
        observations=recording.observations.astype(spaces.obs.dtype, copy=False),
        actions=recording.actions.astype(spaces.action.dtype, copy=False),
        rewards=recording.rewards.astype(np.float32, copy=False),
        skills=skills.astype(np.float32, copy=False),
        terminated=recording.terminated,
        truncated=recording.truncated,
    )


def _actions_in_range(actions: Array, spec: ActionSpec) -> bool:
    return bool((actions >= 0).all() and (actions < np.array(spec.sizes).reshape(spec.shape)).all())


def _is_frame_stack(observations: Array) -> bool:
    """Whether each is a stack of frames whose older ones are the newer ones of the observation before."""
    first = observations[0]
    return bool((first == first[:1]).all() and (observations[1:, :-1] == observations[:-1, 1:]).all())
