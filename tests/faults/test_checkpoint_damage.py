"""Damage to a checkpoint: every kind is noticed, named, and passed over loudly for the one before it."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpoint_bench import MEMBERS, Bench, two_checkpoints
from intrigue.errors import CheckpointError
from intrigue.run import canonical, checkpoint
from intrigue.run.checkpoint import manifest


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_checkpoints(tmp_path_factory.mktemp("original"))


@pytest.fixture
def bench(original: Path, tmp_path: Path) -> Bench:
    return Bench(Path(shutil.copytree(original, tmp_path / "checkpoints")))


def test_the_undamaged_bench_is_whole(bench: Bench) -> None:
    assert checkpoint.verify(bench.folder).ok
    assert checkpoint.load(bench.folder, on_skip=pytest.fail).step == 200


@pytest.mark.parametrize("name", MEMBERS)
def test_truncation_at_every_percent(bench: Bench, name: str) -> None:
    content = bench.intact[name]
    for percent in range(100):
        bench.with_content(name, content[: len(content) * percent // 100], f"{name} at {percent} %")


def test_random_bit_flips(bench: Bench) -> None:
    dice = random.Random(7)
    for _ in range(300):
        name = dice.choice(MEMBERS)
        content = bytearray(bench.intact[name])
        place = dice.randrange(len(content) * 8)
        content[place // 8] ^= 1 << (place % 8)
        bench.with_content(name, bytes(content), f"{name}, bit {place}")


def test_every_single_bit_of_the_manifest(bench: Bench) -> None:
    for place in range(len(bench.intact["manifest.json"]) * 8):
        content = bytearray(bench.intact["manifest.json"])
        content[place // 8] ^= 1 << (place % 8)
        try:
            found = manifest.parse(bytes(content))
        except CheckpointError:
            continue
        pytest.fail(f"bit {place} of the manifest was altered unseen: {found}")


@pytest.mark.parametrize("name", MEMBERS)
def test_zeroed_pages_and_added_bytes(bench: Bench, name: str) -> None:
    content = bench.intact[name]
    for start in range(0, len(content), 512):
        zeroed = content[:start] + bytes(len(content[start : start + 512])) + content[start + 512 :]
        if zeroed != content:
            bench.with_content(name, zeroed, f"{name}, page at {start}")
    for added in (content + b"\0", content + b"\n", b" " + content, content * 2, b""):
        bench.with_content(name, added, f"{name} with other ends")


@pytest.mark.parametrize("names", [("state.json",), ("tensors.safetensors",), ("manifest.json",), MEMBERS], ids=str)
def test_members_of_another_checkpoint(bench: Bench, names: tuple[str, ...]) -> None:
    for name in names:
        shutil.copy(bench.folder / f"{100:012d}" / name, bench.newest / name)
    bench.assert_refused(f"{names} from the older checkpoint")


def test_missing_extra_and_misnamed_files(bench: Bench) -> None:
    for name in MEMBERS:
        os.unlink(bench.newest / name)
        bench.assert_refused(f"{name} is missing")
        (bench.newest / name).write_bytes(bench.intact[name])
    (bench.newest / "extra.pt").write_bytes(b"x")
    bench.assert_refused("an unknown file")
    os.unlink(bench.newest / "extra.pt")
    assert checkpoint.verify(bench.folder).ok


def test_the_message_names_file_and_expected_and_found(bench: Bench) -> None:
    (bench.newest / "tensors.safetensors").write_bytes(bench.intact["tensors.safetensors"][:-3])
    length = len(bench.intact["tensors.safetensors"])
    assert checkpoint.verify(bench.folder).problems == [
        f"tensors.safetensors: expected {length} bytes, found {length - 3}"
    ]
    changed = bytearray(bench.intact["state.json"])
    changed[10] ^= 1
    (bench.newest / "tensors.safetensors").write_bytes(bench.intact["tensors.safetensors"])
    (bench.newest / "state.json").write_bytes(bytes(changed))
    assert re.fullmatch(
        r"state.json: SHA-256 expected [0-9a-f]{64}, found [0-9a-f]{64}", *checkpoint.verify(bench.folder).problems
    )


def test_all_damaged_is_an_error_and_moves_nothing(bench: Bench) -> None:
    for step in (100, 200):
        (bench.folder / f"{step:012d}" / "manifest.json").write_bytes(b"")
    messages: list[str] = []
    with pytest.raises(CheckpointError, match="2 damaged"):
        checkpoint.load(bench.folder, on_skip=messages.append)
    assert len(messages) == 2
    assert checkpoint.quarantine_damaged(bench.folder) == []


def _symlink(path: Path) -> None:
    os.rename(path, path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def _pipe(path: Path) -> None:
    os.unlink(path)
    os.mkfifo(path)


def _folder(path: Path) -> None:
    os.unlink(path)
    path.mkdir()


@pytest.mark.parametrize("name", MEMBERS)
@pytest.mark.parametrize("replace", [_symlink, _pipe, _folder])
def test_links_pipes_and_folders_are_not_read(bench: Bench, name: str, replace: Callable[[Path], None]) -> None:
    replace(bench.newest / name)
    bench.assert_refused(f"{name} is not a plain file")


def test_a_link_in_place_of_the_whole_checkpoint_is_refused(bench: Bench) -> None:
    bench.newest.rename(bench.folder.parent / "elsewhere")
    bench.newest.symlink_to(bench.folder.parent / "elsewhere")
    bench.assert_refused("a link to a checkpoint")


def _resealed(bench: Bench, name: str, content: bytes) -> None:
    """A hostile member with a manifest that vouches for it: hashes protect against accidents only."""
    (bench.newest / name).write_bytes(content)
    fields = json.loads(bench.intact["manifest.json"])
    del fields["seal"]
    seal = checkpoint.seal_bytes(content)
    fields["members"][name] = {"length": seal.length, "sha256": seal.sha256}
    listed = canonical.encode({**fields, "seal": manifest._compute_seal(fields)}, indent=2)
    (bench.newest / "manifest.json").write_bytes(listed)


def _tensors(header: Any, payload: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + payload


def _one(dtype: Any = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape) if isinstance(shape, tuple) else shape, "data_offsets": offsets}


HOSTILE_TENSORS = {
    "empty": b"",
    "short": b"\1\2",
    "length beyond the file": _tensors(b"{}", length=2**63),
    "length 2^64-1": _tensors(b"{}", length=2**64 - 1),
    "not JSON": _tensors(b"\x80\x04."),
    "not an object": _tensors([1]),
    "deep": _tensors(b"[" * 200_000),
    "duplicate": _tensors(b'{"a":{},"a":{}}'),
    "overlap": _tensors({"a": _one(), "b": _one()}, bytes(4)),
    "hole": _tensors({"a": _one(offsets=[4, 8])}, bytes(8)),
    "huge shape": _tensors({"a": _one(shape=(2**62, 2**62))}, bytes(4)),
    "huge span": _tensors({"a": _one(shape=(2**60,), offsets=[0, 2**62])}, bytes(4)),
    "negative": _tensors({"a": _one(offsets=[-4, 0])}, bytes(4)),
    "backwards": _tensors({"a": _one(offsets=[4, 0])}, bytes(4)),
    "float shape": _tensors({"a": _one(shape=[1.0])}, bytes(4)),
    "bool shape": _tensors({"a": _one(shape=[True])}, bytes(4)),
    "no shape": _tensors({"a": {"dtype": "F32", "data_offsets": [0, 4]}}, bytes(4)),
    "odd dtype": _tensors({"a": _one(dtype="O")}, bytes(4)),
    "dtype list": _tensors({"a": _one(dtype=["F32"])}, bytes(4)),
    "too many dimensions": _tensors({"a": _one(shape=[1] * 100)}, bytes(4)),
    "trailing": _tensors({"a": _one()}, bytes(5)),
    "missing payload": _tensors({"a": _one()}, b""),
    "other names": _tensors({"a": _one()}, bytes(4)),
}
HOSTILE_STATES = {
    "pickle": b"\x80\x04cposix\nsystem\n(S'touch canary'\ntR.",
    "list": b"[]",
    "bare NaN": b'{"numpy":[],"tree":NaN}',
    "deep": b'{"numpy":[],"tree":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "reference to nothing": b'{"numpy":[],"tree":{"$array":"nothing"}}',
    "reference by number": b'{"numpy":[],"tree":{"$array":1}}',
    "reference by list": b'{"numpy":[],"tree":{"$array":["x"]}}',
    "numpy of nothing": b'{"numpy":["nothing"],"tree":1}',
    "numpy of a list": b'{"numpy":[["x"]],"tree":1}',
    "odd float": b'{"numpy":[],"tree":{"$float":"1e9"}}',
    "marked float with company": b'{"numpy":[],"tree":{"$float":"nan","x":1}}',
    "huge integer": b'{"numpy":[],"tree":' + b"9" * 100_000 + b"}",
    "not UTF-8": b'{"numpy":[],"tree":"\xff\xfe"}',
}


@pytest.mark.parametrize("kind", sorted(HOSTILE_TENSORS))
def test_hostile_tensors_are_refused(bench: Bench, kind: str) -> None:
    _resealed(bench, "tensors.safetensors", HOSTILE_TENSORS[kind])
    bench.assert_refused(kind)
    problem = checkpoint.verify(bench.folder).problems[0]
    if kind == "other names":
        assert "they differ" in problem
    else:
        assert problem.startswith("tensors.safetensors: ")  # refused for its layout, before anything else is compared


@pytest.mark.parametrize("kind", sorted(HOSTILE_STATES))
def test_hostile_states_are_refused(bench: Bench, kind: str) -> None:
    _resealed(bench, "state.json", HOSTILE_STATES[kind])
    bench.assert_refused(kind)


def test_a_manifest_without_end_is_not_read_to_its_end(bench: Bench) -> None:
    with open(bench.newest / "manifest.json", "ab") as file:
        file.truncate(2**40)  # sparse: a terabyte that would have to be read
    bench.assert_refused("a manifest of a terabyte")
