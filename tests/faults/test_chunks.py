"""Chunks of checkpoints: written once, whole at every kill, named when damaged, gone when nobody names them."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
import torch

from chunk_bench import chunk, names, save, save_and_die, state_at
from intrigue.errors import CheckpointError, StorageError
from intrigue.run import checkpoint, disk
from intrigue.run.checkpoint import chunks
from intrigue.state import StoredChunk


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    for step in (100, 200, 300, 400):
        save(folder, step)
    return folder


def test_chunks_come_back_as_they_were(original: Path) -> None:
    loaded = checkpoint.load(original, on_skip=pytest.fail)
    assert torch.equal(loaded.state["weights"], torch.full((20,), 400.0))
    kept = loaded.state["kept"]["chunks"]
    assert [isinstance(each, StoredChunk) for each in kept] == [True] * 3
    for number, each in zip((1, 2, 3), kept, strict=True):
        assert torch.equal(each.load()["frame"], chunk(number)["frame"])
    assert names(original) == ["0", "10", "20", "30"], "the checkpoint of step 300 still names the first"


def test_a_chunk_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_at(300)
    checkpoint.save(tmp_path, 300, state, config_digest="c", meta={}, keep=2)
    before = {path.name: path.stat().st_ino for path in (tmp_path / "chunks").iterdir()}
    opened: list[Path] = []
    real = disk.open_new
    monkeypatch.setattr(disk, "open_new", lambda path: (opened.append(path), real(path))[1])
    state["weights"] = torch.ones(20)
    state["kept"]["chunks"] = [*state["kept"]["chunks"][1:], chunk(3)]
    checkpoint.save(tmp_path, 400, state, config_digest="c", meta={}, keep=2)
    written = [path for path in opened if path.parent.name == "chunks"]
    assert len(written) == 1
    after = {path.name: path.stat().st_ino for path in (tmp_path / "chunks").iterdir()}
    assert before.items() < after.items(), "what was there is the same file"
    assert checkpoint.size_bytes(state) == 20 * 4, "what a checkpoint needs on disk leaves out what is there already"


def test_the_digest_is_of_the_content_not_of_how_it_got_there(original: Path, tmp_path: Path) -> None:
    save(tmp_path, 400)
    assert checkpoint.digest(tmp_path) == checkpoint.digest(original)
    other = state_at(400)
    other["kept"]["chunks"][0]["frame"][3, 3] ^= 1
    checkpoint.save(tmp_path / "other", 400, other, config_digest="c", meta={}, keep=1)
    assert checkpoint.digest(tmp_path / "other") != checkpoint.digest(original)


def test_chunks_go_when_no_kept_checkpoint_names_them(original: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(original, tmp_path / "c"))
    stranger = folder / "chunks" / "notes.txt"
    stranger.write_text("not ours")
    save(folder, 500, keep=1)
    assert stranger.exists()
    stranger.unlink()
    assert names(folder) == ["20", "30", "40"]


def test_nothing_is_swept_when_a_checkpoint_cannot_be_asked(original: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(original, tmp_path / "c"))
    (folder / f"{400:012d}" / "state.json").write_bytes(b"{")
    save(folder, 500, keep=2)
    assert set(names(folder)) == {"0", "10", "20", "30", "40"}


@pytest.mark.parametrize("keep", [1, 2])
def test_kill_at_every_call_of_a_save(original: Path, tmp_path: Path, keep: int) -> None:
    calm = Path(shutil.copytree(original, tmp_path / "calm"))
    save(calm, 500, keep)
    expected = checkpoint.digest(calm)
    points = 0
    for number in range(1, 200):
        folder = Path(shutil.copytree(original, tmp_path / str(number)))
        code = save_and_die(folder, 500, keep, f"checkpoint:any:{number}:kill")
        assert checkpoint.verify(folder).ok, checkpoint.verify(folder).problems
        assert checkpoint.digest(folder) in {checkpoint.digest(original), expected}
        for path in checkpoint.list_checkpoints(folder):
            assert checkpoint.examine(path, keep=False)[1] == []
        if code == 0:
            break
        assert code == -signal.SIGKILL
        points += 1
        checkpoint.clean_leftovers(folder)
        save(folder, 500, keep)
        assert checkpoint.digest(folder) == expected
        assert names(folder) == names(calm)
        shutil.rmtree(folder)
    assert points >= 25


def test_a_torn_chunk_is_never_published(original: Path, tmp_path: Path) -> None:
    for number in (1, 2):
        folder = Path(shutil.copytree(original, tmp_path / str(number)))
        assert save_and_die(folder, 500, 1, f"checkpoint:write:{number}:torn") == -signal.SIGKILL
        assert checkpoint.verify(folder).step == 400
        assert any(name.startswith(".tmp-") for name in names(folder))
        checkpoint.clean_leftovers(folder)
        assert not any(name.startswith(".tmp-") for name in names(folder))


def refusal_of_save(folder: Path) -> str:
    try:
        save(folder, 500, 1)
    except StorageError as refusal:
        return str(refusal)
    return ""


@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_a_refusing_disk_at_every_call(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    refused = 0
    for number in range(1, 200):
        folder = Path(shutil.copytree(original, tmp_path / str(number)))
        disk.reset_faults()
        monkeypatch.setenv(disk.FAULT_VARIABLE, f"checkpoint:any:{number}:{error}")
        refusal = refusal_of_save(folder)
        monkeypatch.delenv(disk.FAULT_VARIABLE)
        if not refusal:
            break
        assert error in refusal
        refused += 1
        assert checkpoint.verify(folder).ok
        assert not any(name.startswith(".tmp-") for name in names(folder))
        save(folder, 500, 1)
        assert checkpoint.verify(folder).step == 500
        assert names(folder) == ["20", "30", "40"]
    assert refused >= 25


def damaged(original: Path, folder: Path, first: str, damage: str) -> Path:
    """A copy whose chunk of that first row was cut short, altered in one bit, removed, or made a link."""
    shutil.copytree(original, folder)
    (path,) = (folder / "chunks").glob(f"rows-{int(first):015d}-*")
    content = bytearray(path.read_bytes())
    path.unlink()
    match damage:
        case "cut":
            path.write_bytes(content[:-7])
        case "altered":
            content[-5] ^= 16
            path.write_bytes(content)
        case "link":
            path.with_name(".elsewhere").write_bytes(content)
            path.symlink_to(path.with_name(".elsewhere"))
    return folder


@pytest.mark.parametrize("damage", ["cut", "altered", "missing", "link"])
def test_a_damaged_chunk_is_named_and_the_older_checkpoint_is_used(original: Path, tmp_path: Path, damage: str) -> None:
    folder = damaged(original, tmp_path / "c", "30", damage)
    verdict = checkpoint.verify(folder)
    assert not verdict.ok
    assert verdict.step == 400
    assert all(each.startswith("chunks/rows-000000000000030-") for each in verdict.problems)
    with pytest.raises(CheckpointError):
        checkpoint.digest(folder)
    said: list[str] = []
    loaded = checkpoint.load(folder, on_skip=said.append)
    assert loaded.step == 300
    assert len(said) == 1 and "chunks/rows-000000000000030-" in said[0]
    checkpoint.quarantine_damaged(folder)
    save(folder, 400)
    assert checkpoint.verify(folder).ok, "the run goes on over it, and writes the chunk anew"
    assert checkpoint.digest(folder) == checkpoint.digest(original)


def test_a_chunk_both_checkpoints_need_leaves_nothing_to_go_on_from(original: Path, tmp_path: Path) -> None:
    folder = damaged(original, tmp_path / "c", "20", "altered")
    with pytest.raises(CheckpointError, match="no whole checkpoint"):
        checkpoint.load(folder, on_skip=lambda text: None)


def test_a_chunk_that_changes_between_check_and_use_is_caught(original: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(original, tmp_path / "c"))
    loaded = checkpoint.load(folder, on_skip=pytest.fail)
    (path,) = (folder / "chunks").glob("rows-000000000000020-*")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="rows-000000000000020-"):
        loaded.state["kept"]["chunks"][1].load()


@pytest.mark.parametrize(
    "reference",
    [
        {"name": "../000000000300/tensors.safetensors", "length": 1, "sha256": "0" * 64},
        {"name": "rows-000000000000010-0123456789abcdef.safetensors", "length": -1, "sha256": "0" * 64},
        {"name": "rows-000000000000010-0123456789abcdef.safetensors", "length": 1, "sha256": "x"},
        {"name": "rows-000000000000010-0123456789abcdef.safetensors", "length": True, "sha256": "0" * 64},
        {"name": "rows-000000000000010-0123456789abcdef.safetensors\n", "length": 1, "sha256": "0" * 64},
        ["name"],
        None,
    ],
)
def test_a_hostile_reference_reaches_no_file(reference: object) -> None:
    with pytest.raises(CheckpointError):
        chunks.list_references({"kept": [{chunks.MARK: reference}]})


def test_a_disk_that_lies_about_a_chunk_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = disk.write_all

    def lossy(descriptor: int, content: bytes | memoryview) -> None:
        changed = bytearray(content)
        if "/chunks/" in os.readlink(f"/proc/self/fd/{descriptor}"):
            changed[len(changed) // 2] ^= 4
        real(descriptor, bytes(changed))

    monkeypatch.setattr(disk, "write_all", lossy)
    with pytest.raises(StorageError, match="came back from the disk changed"):
        save(tmp_path, 100)
    assert checkpoint.list_checkpoints(tmp_path) == []
    assert os.listdir(tmp_path / "chunks") == []
