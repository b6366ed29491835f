"""Exported episodes that are damaged, of other people, of other sizes; the command; a full disk."""

from __future__ import annotations

import io
import json
import shutil

import numpy as np
import pytest

from exported_episodes import FORMS, exported, hand_made, lived, refilled, saved
from intrigue.cli import main
from intrigue.datasets.load import load_episodes
from intrigue.datasets.sealed_folder import SEAL
from intrigue.errors import CheckpointError, ConfigError
from intrigue.replay.prefill import prefill_replay
from intrigue.replay.recording import Recording, Recordings
from replay_runs import World, replay_of


@pytest.mark.parametrize("form", FORMS)
def test_damage_is_named(tmp_path, form):
    to = exported(tmp_path, refilled(hand_made()), form)
    path = to / ("episode_000001_2.npz" if form == "exorl" else "data/main_data.hdf5")
    whole = path.read_bytes()
    for damaged in (whole[:-9], whole[:60] + bytes([whole[60] ^ 1]) + whole[61:], b""):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=rf"{path.name} is damaged: SHA-256"):
            list(load_episodes(to))
    path.unlink()
    with pytest.raises(CheckpointError, match=rf"missing .*{path.name}"):
        load_episodes(to)
    path.write_bytes(whole)
    assert len(list(load_episodes(to))) == 3
    (to / SEAL).write_text((to / SEAL).read_text().replace("world", "other"))
    with pytest.raises(CheckpointError, match=f"{SEAL} is damaged"):
        load_episodes(to)


def test_a_file_that_was_not_exported_is_named(tmp_path):
    to = exported(tmp_path, refilled(hand_made()), "exorl")
    shutil.copy(to / "episode_000000_3.npz", to / "episode_000009_3.npz")
    with pytest.raises(CheckpointError, match=r"episode_000009_3\.npz is not one of the files"):
        list(load_episodes(to))


def arrays(rows: int, **changes) -> dict[str, np.ndarray]:
    """An episode as ExORL's own files have it, with the simulator's states."""
    return {
        "observation": np.ones((rows, 3), np.float32),
        "action": np.zeros(rows, np.int64),
        "reward": np.zeros((rows, 1), np.float32),
        "discount": np.ones((rows, 1), np.float32),
        "physics": np.zeros((rows, 9)),
    } | changes


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("episode_000000_3.npz", {"reward": np.zeros((3, 1), np.float32)}, "different numbers of rows"),
        ("episode_000000_3.npz", {"reward": np.zeros((4, 2), np.float32)}, "one number in each row"),
        ("episode_000000_3.npz", {"observation": np.full((4, 3), np.nan, np.float32)}, "not finite"),
        ("episode_000000_3.npz", {"observation": np.full((4, 3), "x")}, "observations of type"),
        ("episode_000000_3.npz", {"discount": np.float32([[1], [0], [1], [1]])}, "discounts must be 1"),
        ("episode_000000_3.npz", {"action": np.array([{}] * 4, object)}, "damaged: Object arrays"),
        ("episode_000000_9.npz", {}, "holds 3 transitions, its name says 9"),
    ],
)
def test_other_peoples_files_are_read_and_checked(tmp_path, name, changes, words):
    np.savez(tmp_path / "episode_000001_5.npz", **arrays(6))
    [plain] = load_episodes(tmp_path)
    assert (len(plain), plain.terminated, plain.truncated) == (5, False, True)
    np.savez(tmp_path / name, **arrays(4, **changes))
    with pytest.raises(CheckpointError, match=words) as refused:
        list(load_episodes(tmp_path))
    assert str(refused.value).startswith(name)


@pytest.mark.parametrize("cut", [0, 10, 200, 500])
def test_torn_files_of_other_people_are_named(tmp_path, cut):
    content = io.BytesIO()
    np.savez_compressed(content, **arrays(6))
    (tmp_path / "episode_000000_5.npz").write_bytes(content.getvalue()[:cut])
    with pytest.raises(CheckpointError, match=r"episode_000000_5\.npz is damaged"):
        list(load_episodes(tmp_path))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"observation": np.ones((4, 5), np.float32)}, r"observations have shape \(5,\), the run has \(3,\)"),
        ({"observation": np.ones((4, 3), np.uint8)}, "observations are uint8, the run has float32"),
        ({"action": np.zeros((4, 2), np.int64)}, r"actions have shape \(2,\), the run has \(\)"),
        ({"action": np.zeros(4, np.float32)}, "actions are float32, the run has int64"),
        ({"action": np.array([0, 6, 7, 0])}, "actions other than 0 to 6"),
    ],
)
def test_other_sizes_are_refused(tmp_path, changes, words):
    np.savez(tmp_path / "episode_000000_3.npz", **arrays(4, **changes))
    with pytest.raises(ConfigError, match=words):
        refilled(load_episodes(tmp_path))


def test_more_than_the_replay_holds_is_refused(tmp_path):
    np.savez(tmp_path / "episode_000000_399.npz", **arrays(400))
    recordings = load_episodes(tmp_path)
    with pytest.raises(ConfigError, match=r"399 transitions need 401 rows.*--agent\.capacity 401"):
        refilled(recordings, capacity=100)
    assert refilled(recordings, capacity=401).store.steps == 399


def test_skills_that_a_run_needs_must_be_there():
    replay = replay_of(World(1, 0, skill=2))
    with pytest.raises(ConfigError, match=r"skills have shape \(0,\), the run has \(2,\)"):
        prefill_replay(replay, hand_made(), np.zeros((1, 3), np.float32))


def test_pictures_that_are_no_stacks_are_refused():
    pictures = np.arange(12, dtype=np.uint8).reshape(2, 2, 1, 3)
    zeros = np.zeros(1, np.float32)
    odd = Recordings([1], [Recording(pictures, np.zeros(1, int), zeros, np.zeros((1, 0)), True, False)])
    with pytest.raises(CheckpointError, match="moved on by a frame"):
        prefill_replay(replay_of(World(1, 2)), odd, np.zeros((1, 1, 3), np.uint8))


def test_the_command(tmp_path, capsys):
    _, replay = lived(envs=2, end=0.3)
    run = saved(tmp_path / "run", replay)
    to = tmp_path / "data"
    assert main(["export", str(run), "--to", str(to), "--json"]) == 0
    fields = json.loads(capsys.readouterr().out)
    assert fields["transitions"] + fields["left_out"] == 2 * 60
    assert fields["episodes"] == len(list(to.glob("*.npz")))
    assert fields["environments"] == json.loads((to / "export.json").read_text())["origin"]["environments"] == 2
    before = {path.name: path.read_bytes() for path in to.iterdir()}
    assert main(["export", str(run), "--to", str(to)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in to.iterdir()} == before
    assert main(["export", str(run), "--to", str(tmp_path / "data2"), "--format", "minari"]) == 2
    assert "walker-v0" in capsys.readouterr().err
    chunk = sorted((run / "checkpoints").rglob("*.safetensors"))[-1]
    chunk.write_bytes(chunk.read_bytes()[:-1])
    assert main(["export", str(run), "--to", str(tmp_path / "data3")]) == 4
    assert chunk.name in capsys.readouterr().err
    assert main(["train", "--agent", "dqn", "--replay-from", str(tmp_path / "nowhere")]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "run"]


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    _, replay = lived(end=0.3)
    run = saved(tmp_path / "run", replay)
    monkeypatch.setenv("INTRIGUE_FAULT", "folder:write:3:ENOSPC")
    assert main(["export", str(run), "--to", str(tmp_path / "data")]) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
