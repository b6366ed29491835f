"""Episodes out of a run's replay and back, against a world that remembers everything in plain lists."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from conftest import TINY, same_state
from exported_episodes import (
    FORMS,
    assert_equal,
    episodes_of,
    exported,
    hand_made,
    lived,
    refilled,
    refuse_skips,
    saved,
)
from intrigue.config.run import resolve
from intrigue.datasets import minari as export_minari
from intrigue.datasets.export import export_run, read_run
from intrigue.datasets.load import load_episodes, prefill_from
from intrigue.datasets.sealed_folder import SEAL
from intrigue.errors import ConfigError
from intrigue.replay.prefill import prefill_replay
from intrigue.replay.recording import Recording, Recordings
from intrigue.replay.step_store import VectorStep
from intrigue.run import checkpoint
from intrigue.run.driver import resume, start
from intrigue.run.folder import RunFolder
from intrigue.spaces import ActionSpec, ObsSpec, Spaces
from replay_runs import World, replay_of


@pytest.mark.parametrize("form", FORMS)
@example(envs=1, stack=3, skill=0, end=0.4, late=False, steps=76, capacity=64, seed=1)  # ends that no stack reaches
@settings(max_examples=8, deadline=None)
@given(
    envs=st.integers(1, 3),
    stack=st.sampled_from([0, 1, 3]),
    skill=st.sampled_from([0, 2]),
    end=st.sampled_from([0.05, 0.4]),
    late=st.booleans(),
    steps=st.integers(20, 160),
    capacity=st.integers(64, 300),
    seed=st.integers(0, 2**20),
)
def test_what_comes_back_is_what_happened(tmp_path_factory, form, envs, stack, skill, end, late, steps, capacity, seed):
    world, replay = lived(envs, stack, steps, capacity, skill=skill, end=end, late=late, seed=seed)
    expected = episodes_of(world, replay.store.first)
    folder = tmp_path_factory.mktemp("world")
    if not expected:
        with pytest.raises(ConfigError, match="no whole episode"):
            exported(folder, replay, form)
        assert not (folder / "data-v0").exists()
        return
    back = load_episodes(exported(folder, replay, form))
    assert list(back.lengths) == [len(each) for each in expected]
    for recording, seen in zip(back, expected, strict=True):
        assert_equal(recording, seen)
    remembered = sum(each.valid for row in world.seen[replay.store.first :] for each in row)
    left_out = read_run(folder / "run", on_skip=refuse_skips).left_out
    assert back.transitions == remembered - left_out


def test_the_files_are_exorls(tmp_path):
    to = exported(tmp_path, refilled(hand_made()), "exorl")
    names = sorted(path.name for path in to.iterdir())
    assert names == ["episode_000000_3.npz", "episode_000001_2.npz", "episode_000002_1.npz", SEAL]
    with np.load(to / names[0]) as file:
        assert file.files == ["observation", "action", "reward", "discount"]
        first = {key: file[key] for key in file.files}
    np.testing.assert_array_equal(first["observation"], [[0, 0, 0], [1, 10, 100], [2, 20, 200], [3, 30, 300]])
    np.testing.assert_array_equal(first["action"], [0, 1, 2, 3])
    np.testing.assert_array_equal(first["reward"], [[0], [1], [1.5], [2]])
    np.testing.assert_array_equal(first["discount"], [[1], [1], [1], [0]])
    assert [first[key].dtype for key in ("observation", "reward", "discount")] == [np.float32] * 3
    with np.load(to / names[1]) as file:
        np.testing.assert_array_equal(file["discount"], [[1], [1], [1]])
        assert "truncated" not in file.files
    with np.load(to / names[2]) as file:
        np.testing.assert_array_equal(file["discount"], [[1], [0]])
        np.testing.assert_array_equal(file["truncated"], [[False], [True]])
    about = json.loads((to / SEAL).read_text())
    assert (about["episodes"], about["transitions"], about["origin"]["env"]) == (3, 6, "world")


def test_minari_loads_and_iterates_the_dataset(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari", reason="needs the extra minari")
    world, replay = lived(envs=2, stack=3, skill=2, end=0.3)
    exported(tmp_path, replay, "minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset = minari.load_dataset("data-v0")
    expected = episodes_of(world, 0)
    assert dataset.total_episodes == len(expected)
    assert dataset.total_steps == sum(map(len, expected))
    assert (dataset.action_space.n, dataset.observation_space.shape) == (7, (3, 1, 3))
    for episode, seen in zip(dataset.iterate_episodes(), expected, strict=True):
        np.testing.assert_array_equal(episode.observations[:-1], np.stack([each.obs for each in seen]))
        np.testing.assert_array_equal(episode.observations[1:], np.stack([each.next_obs for each in seen]))
        np.testing.assert_array_equal(episode.actions, [each.action for each in seen])
        np.testing.assert_array_equal(episode.rewards, np.array([each.reward for each in seen], np.float32))
        np.testing.assert_array_equal(episode.terminations, [each.terminated for each in seen])
        np.testing.assert_array_equal(episode.truncations, [each.truncated for each in seen])
        np.testing.assert_array_equal(episode.infos["skill"][:-1], np.stack([each.skill for each in seen]))


def test_pictures_are_not_kept_as_jpeg(tmp_path):
    # Minari does so by itself with pictures of 32 pixels and more, which changes them.
    noise = np.random.default_rng(0).integers(0, 256, (3, 36, 36, 3), dtype=np.uint8)
    episode = Recording(noise, np.zeros(2, int), np.zeros(2, np.float32), np.zeros((2, 0), np.float32), True, False)
    spaces = Spaces(ObsSpec("pixels", (36, 36, 3)), ActionSpec("discrete", sizes=(2,)))
    export_minari.write(tmp_path, Recordings([2], [episode]), spaces, "noise-v0", "none")
    [back] = load_episodes(tmp_path)
    np.testing.assert_array_equal(back.observations, noise)


def stepped(recordings: Recordings, envs: int, frames: np.ndarray):
    """A replay of environments that play these episodes, each taking the next one when it is through with one."""
    replay = replay_of(World(envs, 0), order="episodes")
    waiting = list(recordings)
    empty = Recording(np.zeros((1, 3), np.float32), np.zeros(0, int), np.zeros(0), np.zeros((0, 0)), False, False)
    held = [(waiting.pop(0) if waiting else empty, 0) for _ in range(envs)]
    replay.reset(np.stack([each.observations[0] for each, _ in held]))
    while any(len(each) for each, _ in held):
        rows = {name: [] for name in VectorStep._fields}
        for lane, (each, at) in enumerate(held):
            playing = at < len(each)
            last = at == len(each) - 1
            rows["valid"].append(playing)
            rows["action"].append(each.actions[at] if playing else 0)
            rows["reward"].append(each.rewards[at] if playing else 0.0)
            rows["terminated"].append(playing and last and each.terminated)
            rows["truncated"].append(playing and last and each.truncated)
            rows["next_frames"].append(each.observations[at + 1] if playing else np.zeros(3))
            held[lane] = (waiting.pop(0) if waiting else empty, 0) if last or not playing else (each, at + 1)
        going = any(len(each) for each, _ in held)
        following = np.stack([each.observations[at] for each, at in held]) if going else frames
        types = {"action": np.int64, "reward": np.float32, "next_frames": np.float32}
        fields = {name: np.array(rows[name], types.get(name, bool)) for name in rows.keys() - {"skill", "frames"}}
        replay.add(VectorStep(**fields, skill=torch.zeros(envs, 0), frames=following.astype(np.float32)))
    return replay


@settings(max_examples=15, deadline=None)
@given(
    envs=st.integers(1, 4),
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=12),
    seed=st.integers(0, 2**20),
)
def test_a_refilled_replay_is_the_one_that_stepping_would_have_filled(envs, lengths, seed):
    rng = np.random.default_rng(seed)
    episodes = []
    for length in lengths:
        terminated = bool(rng.random() < 0.5)
        episodes.append(
            Recording(
                rng.normal(size=(length + 1, 3)).astype(np.float32),
                rng.integers(0, 7, length),
                rng.normal(size=length).astype(np.float32),
                np.zeros((length, 0), np.float32),
                terminated,
                not terminated or bool(rng.random() < 0.5),
            )
        )
    recordings = Recordings(lengths, episodes)
    frames = rng.normal(size=(envs, 3)).astype(np.float32)
    replay = replay_of(World(envs, 0), order="episodes")
    prefill_replay(replay, recordings, frames)
    expected = stepped(recordings, envs, frames)
    assert same_state(replay.state_dict(), expected.state_dict())
    assert replay.episodes.finished() == expected.episodes.finished()
    one, two = replay.sample(0), expected.sample(0)
    for name in ("obs", "action", "reward", "next_obs", "valid"):
        assert torch.equal(getattr(one.batch, name), getattr(two.batch, name))


def test_pictures_are_stacked_again(tmp_path):
    world, replay = lived(stack=3, end=0.3, seed=2)
    recordings = load_episodes(exported(tmp_path, replay, "exorl"))
    again = replay_of(World(2, 3), capacity=400)
    prefill_replay(again, recordings, np.zeros((2, 1, 3), np.uint8))
    kept = read_run(saved(tmp_path / "again", again), on_skip=refuse_skips).recordings
    seen = {tuple(each[0].obs.ravel()): each for each in episodes_of(world, 0)}
    assert len(kept) == len(seen)
    for recording in kept:
        assert_equal(recording, seen[tuple(recording.observations[0].ravel())])


DQN = {
    **{key: value for key, value in TINY.items() if not key.startswith(("agent.", "curiosity."))},
    "agent": "dqn",
    "agent.hidden": 8,
    "agent.capacity": 2000,
    "agent.batch": 8,
    "agent.learning_starts": 40,
    "agent.rollout_steps": 20,
    "env.max_steps": 15,
    "device": "cpu",
    "threads": 1,
    "steps": 200,
    "checkpoint_every": 1000,
}


def test_a_run_begins_with_the_episodes_and_goes_on_without_their_folder(tmp_path):
    start(resolve(DQN), out=tmp_path / "a", quiet=True)
    data = tmp_path / "data"
    given_away = export_run(tmp_path / "a", data, "exorl", on_skip=refuse_skips).recordings
    cfg = resolve(DQN, {"seed": 5, "pool.num_envs": 2})
    start(cfg, out=tmp_path / "b", quiet=True, prepare=prefill_from(data))
    start(cfg.with_run(steps=100), out=tmp_path / "c", quiet=True, prepare=prefill_from(data))
    shutil.rmtree(data)
    resume(tmp_path / "c", steps=200, quiet=True)
    digests = [checkpoint.digest(RunFolder(tmp_path / name).checkpoints) for name in ("b", "c")]
    assert digests[0] == digests[1]
    held = [_bytes(each) for each in read_run(tmp_path / "b", on_skip=refuse_skips).recordings]
    assert set(map(_bytes, given_away)) <= set(held)
    assert len(held) > len(given_away) > 5
    noted = json.loads((tmp_path / "b" / "provenance.json").read_text())["replay_from"]
    assert (noted["folder"], noted["of"]["run"], noted["transitions"]) == ("data", "a", given_away.transitions)


def _bytes(recording: Recording) -> bytes:
    parts = (recording.observations, recording.actions, recording.rewards)
    return b"".join(each.tobytes() for each in parts) + bytes([recording.terminated, recording.truncated])


def test_an_agent_without_a_replay_is_refused(tmp_path):
    start(resolve(TINY, {"steps": 64}), out=tmp_path / "ppo", quiet=True)
    with pytest.raises(ConfigError, match="'ppo' has no replay"):
        read_run(tmp_path / "ppo", on_skip=refuse_skips)
    data = exported(tmp_path, refilled(hand_made()), "exorl")
    with pytest.raises(ConfigError, match=r"no replay\. Use one that has"):
        start(resolve(TINY), out=tmp_path / "x", quiet=True, prepare=prefill_from(data))
    assert not (tmp_path / "x").exists()
