"""Faults while a checkpoint is written: a kill at every call, a disk that refuses, a disk that lies."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from checkpoint_bench import KILLS, MEMBERS, SCENARIOS, create_run, save, two_checkpoints
from intrigue.errors import StorageError
from intrigue.run import checkpoint, disk
from places import HELPERS

ERRNOS = ("ENOSPC", "EROFS", "EDQUOT", "EFBIG", "EACCES", "EIO")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_checkpoints(tmp_path_factory.mktemp("original"))


# ---- kills: one program that forks a fresh saver for each point, because starting torch each time would take an hour

FORKER = textwrap.dedent(
    """
    import os, shutil, sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    import checkpoint_bench as faults

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
    command = [sys.executable, "-c", FORKER, str(HELPERS), str(room)]
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
        for path in checkpoint.list_checkpoints(point):  # the older ones too: what has a name is whole
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
    return [checkpoint.step_and_generation(path)[0] for path in checkpoint.list_checkpoints(folder)]


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
            create_run(point)
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
        published = [path.name for path in checkpoint.list_checkpoints(folder)]
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
    import checkpoint_bench as faults
    faults.save(Path(sys.argv[2]), 300, keep=1)
    """
)


def _traced(options: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    tracer = shutil.which("strace")
    assert tracer, "this proof needs `strace`; install it with your system's package manager"
    command = [tracer, "-f", *options, sys.executable, "-c", SAVER, str(HELPERS), str(folder)]
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
