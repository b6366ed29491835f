"""Replays that have lived, exported, for the tests of what comes back."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from intrigue.datasets.export import export_run
from intrigue.replay.prefill import prefill_replay
from intrigue.replay.recording import Recording, Recordings
from intrigue.run import checkpoint
from intrigue.run.folder import RunFolder, write_config
from replay_runs import World, replay_of

FORMS = ("exorl", "minari")


def refuse_skips(text: str) -> None:
    raise AssertionError(text)


def lived(envs=1, stack=0, steps=60, capacity=300, **world):
    """A world and a replay of what happened in it."""
    made = World(envs, stack, **world)
    replay = replay_of(made, capacity=capacity)
    replay.reset(made.frames())
    for _ in range(steps):
        made.step(replay)
    return made, replay


def saved(folder: Path, replay) -> Path:
    """A run folder with this replay in its checkpoint."""
    folder.mkdir(parents=True)
    run = RunFolder(folder)
    write_config(run, {"env": {"id": "world"}, "agent": {"name": "dqn"}, "reward": {"name": "none"}})
    state = {"collector": {"replay": replay.state_dict()}}
    checkpoint.save(run.checkpoints, 7, state, config_digest="0" * 64, meta={}, keep=1)
    return folder


def exported(folder: Path, replay, form: str) -> Path:
    to = folder / "data-v0"
    export_run(saved(folder / "run", replay), to, form, on_skip=refuse_skips)
    return to


def episodes_of(world: World, first: int) -> list[list]:
    """The whole episodes that began in step `first` or later, in the order they ended; each a list of transitions."""
    running: list[list | None] = [[] if first == 0 else None for _ in range(world.envs)]
    done = []
    for step, row in enumerate(world.seen):
        for env, seen in enumerate(row):
            held = running[env]
            if not seen.valid:
                running[env] = [] if step + 1 >= first else None
                continue
            if held is not None:
                held.append(seen)
            if seen.terminated or seen.truncated:
                if held:
                    done.append(held)
                running[env] = [] if step + 1 >= first else None
    return done


def assert_equal(recording: Recording, seen: list) -> None:
    np.testing.assert_array_equal(recording.observations, np.stack([seen[0].obs, *(each.next_obs for each in seen)]))
    np.testing.assert_array_equal(recording.actions, [each.action for each in seen])
    np.testing.assert_array_equal(recording.rewards, np.array([each.reward for each in seen], np.float32))
    np.testing.assert_array_equal(recording.skills, np.stack([each.skill for each in seen]))
    assert (recording.terminated, recording.truncated) == (seen[-1].terminated, seen[-1].truncated)
    assert recording.observations.dtype == seen[0].obs.dtype
    assert (recording.actions.dtype, recording.rewards.dtype) == (np.int64, np.float32)


def hand_made() -> Recordings:
    """Three steps that end in a terminal state, two that are cut off, and one that does both."""

    def episode(base: float, length: int, terminated: bool, truncated: bool) -> Recording:
        return Recording(
            observations=(base + np.arange(length + 1, dtype=np.float32))[:, None] * np.array([1, 10, 100], np.float32),
            actions=np.arange(length) + 1,
            rewards=np.arange(length, dtype=np.float32) / 2 + 1,
            skills=np.zeros((length, 0), np.float32),
            terminated=terminated,
            truncated=truncated,
        )

    episodes = [episode(0, 3, True, False), episode(10, 2, False, True), episode(20, 1, True, True)]
    return Recordings([len(each) for each in episodes], episodes)


def refilled(recordings: Recordings, envs: int = 1, **changes):
    replay = replay_of(World(envs, 0), **changes)
    prefill_replay(replay, recordings, np.full((envs, 3), 77, np.float32))
    return replay
