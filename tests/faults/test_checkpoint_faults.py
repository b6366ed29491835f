"""Faults under a checkpoint: damage of every kind, a kill at every call, a disk that refuses, hostile files."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from intrigue.errors import CheckpointError, StorageError
from intrigue.run import canonical, checkpoint, disk, manifest

MEMBERS = ("manifest.json", "state.json", "tensors.safetensors")
ERRNOS = ("ENOSPC", "EROFS", "EDQUOT", "EFBIG", "EACCES", "EIO")


def state_at(step: int) -> Any:
    generator = torch.Generator().manual_seed(step)
    return {
        "weights": torch.randn(40, 30, generator=generator),
        "memory": np.full((8, 5), step, dtype=np.int32),
        "counters": {"step": step, "best": float("nan")},
    }


def save(folder: Path, step: int, keep: int = 3, **meta: Any) -> Path:
    return checkpoint.save(folder, step, state_at(step), config_digest="c", meta=meta, keep=keep)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    save(folder, 100)
    save(folder, 200)
    return folder


class Bench:
    """Two checkpoints, of which the newest is damaged by a test and put right again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.newest = folder / f"{200:012d}"
        self.intact = {name: (self.newest / name).read_bytes() for name in MEMBERS}

    def assert_refused(self, hint: str) -> None:
        verdict = checkpoint.verify(self.folder)
        assert not verdict.ok, hint
        assert verdict.step == 200
        assert verdict.problems, hint
        with pytest.raises(CheckpointError):
            checkpoint.digest(self.folder)
        messages: list[str] = []
        loaded = checkpoint.load(self.folder, on_skip=messages.append)
        assert loaded.step == 100, hint
        assert len(messages) == 1, hint
        assert str(self.newest) in messages[0]
        assert torch.equal(loaded.state["weights"], state_at(100)["weights"])

    def with_content(self, name: str, content: bytes, hint: str) -> None:
        (self.newest / name).write_bytes(content)
        self.assert_refused(hint)
        (self.newest / name).write_bytes(self.intact[name])


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
    assert checkpoint.set_aside_damaged(bench.folder) == []


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
    listed = canonical.encode({**fields, "seal": manifest._seal(fields)}, indent=2)
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


# ---- kills: one program that forks a fresh saver for each point, because starting torch each time would take an hour

FORKER = textwrap.dedent(
    """
    import os, shutil, sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    import test_checkpoint_faults as faults

    def outcome(scenario, target, number, action):
        child = os.fork()
        if child:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        scope, call = scenario.split("-")[0], "write" if action == "torn" else "any"
        os.environ["INTRIGUE_FAULT"] = f"{scope}:{call}:{number}:{action}"
        try:
            faults.SCENARIOS[scenario](target)
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)

    for scenario, action in faults.KILLS:
        number, status = 0, -9
        while status == -9:
            number += 1
            target = Path(sys.argv[2]) / f"{scenario}-{action}" / str(number)
            shutil.copytree(Path(sys.argv[2]) / "base" / scenario, target)
            status = outcome(scenario, target, number, action)
        if status:
            sys.exit(f"{scenario} {action} at call {number}: exit {status}")
    """
)


def _create_run(place: Path) -> None:
    from intrigue.run import birth

    with birth.create(place / "run", {"steps": 1}, {"host": "h"}) as staging:
        save(staging.folder.checkpoints, 0)
        staging.publish()


def _other_content(place: Path) -> None:
    other = {**state_at(200), "counters": {"step": 200, "best": 1.0}}
    checkpoint.save(place, 200, other, config_digest="c", meta={}, keep=1)


SCENARIOS: dict[str, Callable[[Path], object]] = {
    "checkpoint-keep3": lambda place: save(place, 300),
    "checkpoint-keep1": lambda place: save(place, 300, keep=1),
    "checkpoint-again": lambda place: save(place, 200),
    "checkpoint-other": _other_content,
    "checkpoint-repair": lambda place: save(place, 200),
    "any-birth": _create_run,
}


KILLS = [(scenario, "kill") for scenario in SCENARIOS] + [("checkpoint-keep1", "torn")]
LEAST_POINTS = {
    "checkpoint-keep1-kill": 20,
    "checkpoint-other-kill": 20,
    "any-birth-kill": 25,
    "checkpoint-keep1-torn": 3,
}


@pytest.fixture(scope="module")
def killed(original: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """The folders as each kill left them, per scenario; the last of each is that of the save nobody killed."""
    room = tmp_path_factory.mktemp("killed")
    for scenario in SCENARIOS:
        shutil.copytree(original, room / "base" / scenario)
    (room / "base" / "checkpoint-repair" / f"{200:012d}" / "state.json").write_bytes(b"")
    for step in (100, 200):
        shutil.rmtree(room / "base" / "any-birth" / f"{step:012d}")
    command = [sys.executable, "-c", FORKER, str(Path(__file__).parent), str(room)]
    result = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    points = {}
    for scenario, action in KILLS:
        name = f"{scenario}-{action}"
        points[name] = sorted((room / name).iterdir(), key=lambda path: int(path.name))
        assert len(points[name]) > LEAST_POINTS.get(name, 10), f"{name} was killed at too few points"
    return points


@pytest.mark.parametrize(
    ("scenario", "action"), [pair for pair in KILLS if pair[0] not in ("any-birth", "checkpoint-repair")]
)
def test_kill_at_every_call_of_a_save(
    original: Path, killed: dict[str, list[Path]], scenario: str, action: str
) -> None:
    points = killed[f"{scenario}-{action}"]
    calm = points[-1]
    expected = checkpoint.digest(calm)
    for point in points:
        assert checkpoint.verify(point).ok
        assert checkpoint.digest(point) in {checkpoint.digest(original), expected}
        checkpoint.load(point, on_skip=pytest.fail)
        for path in checkpoint.published(point):  # the older ones too: what has a name is whole
            assert checkpoint.examine(path, keep=False)[1] == []
        checkpoint.clean_leftovers(point)
        SCENARIOS[scenario](point)
        assert checkpoint.digest(point) == expected
        assert _visible(point) == _visible(calm)


def test_kill_at_every_call_of_a_save_over_a_damaged_one(original: Path, killed: dict[str, list[Path]]) -> None:
    for point in killed["checkpoint-repair-kill"]:
        loaded = checkpoint.load(point, on_skip=lambda message: None)
        assert loaded.step == (200 if checkpoint.verify(point).ok and (point / f"{200:012d}").exists() else 100)
        checkpoint.clean_leftovers(point)
        save(point, 200)
        assert checkpoint.digest(point) == checkpoint.digest(original)
        assert _visible(point) == [100, 200]


def _visible(folder: Path) -> list[int]:
    assert not [name for name in os.listdir(folder) if name.startswith((".tmp-", ".trash-"))]
    return [checkpoint.order(path)[0] for path in checkpoint.published(folder)]


def test_kill_at_every_call_of_a_birth(killed: dict[str, list[Path]]) -> None:
    seen = set()
    for point in killed["any-birth-kill"]:
        born = (point / "run").exists()
        seen.add(born)
        if born:
            assert checkpoint.verify(point / "run" / "checkpoints").ok
            assert (point / "run" / "config.json").exists()
            assert (point / "run" / "provenance.json").exists()
        else:
            _create_run(point)
        assert os.listdir(point) == ["run"] or born
    assert seen == {True, False}


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def plan(text: str) -> None:
        disk.reset_faults()
        monkeypatch.setenv(disk.FAULT_VARIABLE, text)

    return plan


def _refusal_of_save(folder: Path) -> StorageError | None:
    try:
        save(folder, 300, keep=1)
    except StorageError as refusal:
        return refusal
    return None


@pytest.mark.parametrize("error", ERRNOS)
def test_a_refusing_disk_at_every_call(
    original: Path, tmp_path: Path, fault: Callable[[str], None], error: str
) -> None:
    before = checkpoint.digest(original)
    refused = 0
    for number in range(1, 200):
        folder = Path(shutil.copytree(original, tmp_path / str(number)))
        fault(f"checkpoint:any:{number}:{error}")
        refusal = _refusal_of_save(folder)
        fault("")
        if refusal is None:
            break
        refused += 1
        assert all(part in str(refusal) for part in (error, str(folder), "free"))
        assert refusal.exit_code == 3
        assert checkpoint.verify(folder).ok
        assert not [name for name in os.listdir(folder) if name.startswith(".tmp-")]
        published = [path.name for path in checkpoint.published(folder)]
        if f"{300:012d}" not in published:
            assert checkpoint.digest(folder) == before
        save(folder, 300, keep=1)
        assert checkpoint.load(folder, on_skip=pytest.fail).step == 300
    assert refused >= 20


def test_the_needed_bytes_are_named(original: Path, tmp_path: Path, fault: Callable[[str], None]) -> None:
    fault("checkpoint:write:1:ENOSPC")
    with pytest.raises(
        StorageError, match=rf"the disk is full \(ENOSPC, needed {40 * 30 * 4 + 8 * 5 * 4} bytes, free \d+ bytes"
    ):
        save(tmp_path / "c", 1)


@pytest.mark.parametrize("name", MEMBERS)
def test_a_disk_that_lies_is_caught_before_publishing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    save(tmp_path, 1)
    real = disk.write_all

    def lossy(descriptor: int, content: Any) -> None:
        changed = bytearray(content)
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(name):
            changed[len(changed) // 2] ^= 4
        real(descriptor, bytes(changed))

    monkeypatch.setattr(disk, "write_all", lossy)
    with pytest.raises(StorageError, match="came back from the disk changed"):
        save(tmp_path, 2)
    assert os.listdir(tmp_path) == [f"{1:012d}"]


# ---- slow: the same with the kernel's own calls, traced and killed from outside

SAVER = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    import test_checkpoint_faults as faults
    faults.save(Path(sys.argv[2]), 300, keep=1)
    """
)


def _traced(options: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    tracer = shutil.which("strace")
    assert tracer, "this proof needs `strace`; install it with your system's package manager"
    command = [tracer, "-f", *options, sys.executable, "-c", SAVER, str(Path(__file__).parent), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


@pytest.mark.slow
def test_order_of_the_calls_of_a_save(original: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(original, tmp_path / "checkpoints"))
    calls = "openat,write,fsync,rename,renameat,renameat2,unlink,unlinkat,rmdir"
    log = tmp_path / "log"
    assert _traced(["-y", "-o", str(log), "-e", f"trace={calls}"], folder).returncode == 0
    lines = [line for line in log.read_text().splitlines() if str(folder) in line]
    events = []
    for line in lines:
        call = re.search(r"(\w+)\(", line)
        assert call
        target = next((name for name in MEMBERS if name in line), "folder")
        events.append((call[1], target, line))
    publish = next(
        i for i, (call, _, line) in enumerate(events) if call.startswith("rename") and f'{300:012d}"' in line
    )
    for name in MEMBERS:
        writes = [i for i, (call, target, _) in enumerate(events) if call == "write" and target == name]
        syncs = [i for i, (call, target, _) in enumerate(events) if call == "fsync" and target == name]
        assert writes, name
        assert syncs, name
        assert max(writes) < max(syncs) < publish, name
    first_manifest = next(i for i, (_, target, _) in enumerate(events) if target == "manifest.json" and i < publish)
    for name in MEMBERS[1:]:
        last_sync = max(i for i, (call, target, _) in enumerate(events) if call == "fsync" and target == name)
        assert last_sync < first_manifest, f"{name} must be on the device before the manifest is begun"
    after = [call for call, target, _ in events[publish + 1 :] if target == "folder"]
    assert after[0] in ("openat", "fsync")
    removal = next(i for i, (call, _, line) in enumerate(events) if call.startswith("rename") and ".trash-" in line)
    parent_sync = next(i for i, (call, target, _) in enumerate(events) if i > publish and call == "fsync")
    assert publish < parent_sync < removal


@pytest.mark.slow
@pytest.mark.parametrize("call", ["fsync", "rename", "unlink", "rmdir", "mkdir"])
def test_killed_by_the_kernel_at_every_call(original: Path, tmp_path: Path, call: str) -> None:
    calm = Path(shutil.copytree(original, tmp_path / "calm"))
    save(calm, 300, keep=1)
    killed = 0
    for number in range(1, 60):
        folder = Path(shutil.copytree(original, tmp_path / str(number)))
        result = _traced(["-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={number}"], folder)
        if result.returncode == 0:
            break
        killed += 1
        assert checkpoint.verify(folder).ok
        checkpoint.clean_leftovers(folder)
        save(folder, 300, keep=1)
        assert checkpoint.digest(folder) == checkpoint.digest(calm)
    assert killed >= {"fsync": 6, "rename": 3, "unlink": 6, "rmdir": 2, "mkdir": 1}[call]


@pytest.mark.slow
def test_a_really_full_disk(tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    tool = shutil.which("mount")
    assert tool, "this proof needs `mount` and the right to use it"
    size = 256 * 1024
    assert os.geteuid() == 0, "this proof mounts a file system; run it as root"
    subprocess.run([tool, "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(mount)], check=True)
    try:
        small = {"x": torch.zeros(10_000)}
        checkpoint.save(mount / "c", 1, small, config_digest="c", meta={}, keep=1)
        for percent in range(1, 100, 7):
            filler = mount / "filler"
            filler.write_bytes(bytes(max(0, os.statvfs(mount).f_bavail * 4096 - 45_000 * percent // 100)))
            with pytest.raises(StorageError, match="ENOSPC"):
                checkpoint.save(mount / "c", 2, {"x": torch.ones(10_000)}, config_digest="c", meta={}, keep=1)
            filler.unlink()
            assert os.listdir(mount / "c") == [f"{1:012d}"]
            assert checkpoint.verify(mount / "c").ok
        checkpoint.save(mount / "c", 2, {"x": torch.ones(10_000)}, config_digest="c", meta={}, keep=1)
        assert checkpoint.verify(mount / "c").step == 2
        subprocess.run([tool, "-o", "remount,ro", str(mount)], check=True)
        with pytest.raises(StorageError, match="read-only"):
            checkpoint.save(mount / "c", 3, small, config_digest="c", meta={}, keep=1)
        assert checkpoint.verify(mount / "c").ok
    finally:
        subprocess.run(["umount", str(mount)], check=True)
