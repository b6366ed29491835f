"""One writer per folder: exactly one of many, named to the others, and no trace left when it is killed."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from intrigue.errors import ConfigError, StorageError
from intrigue.run.lock import LOCK_NAME, RunLock, read_holder

HOLDER = """
import sys, time
from pathlib import Path
from intrigue.run.lock import RunLock
lock = RunLock(Path(sys.argv[1]), "intrigue train rooms").acquire()
{extra}
print("held", flush=True)
time.sleep(60)
"""

CROWD = """
import os, sys, time
from pathlib import Path
from intrigue.errors import ConfigError
from intrigue.run.lock import RunLock
gate_read, gate_write = os.pipe()
children = []
for _ in range(int(sys.argv[2])):
    child = os.fork()
    if not child:
        os.close(gate_write)
        os.read(gate_read, 1)                      # all start at once, when the gate is closed
        try:
            lock = RunLock(Path(sys.argv[1])).acquire()
        except ConfigError as error:
            os._exit(error.exit_code if "in use by" in str(error) else 99)
        time.sleep(1.5)
        os._exit(0)
    children.append(child)
os.close(gate_write)
print(*(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""


def start_holder(folder: Path, extra: str = "") -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER.format(extra=extra), str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def stop(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.wait()
    assert child.stdout is not None
    child.stdout.close()


def test_the_second_is_told_who_was_first_and_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    child = start_holder(tmp_path)
    try:
        with pytest.raises(
            ConfigError, match=rf"pid {child.pid} on host \S+ since 20\d\d-.*intrigue train rooms"
        ) as caught:
            RunLock(tmp_path).acquire()
        assert caught.value.exit_code == 2
    finally:
        stop(child)
    with RunLock(tmp_path) as lock:
        assert lock.is_held


@pytest.mark.parametrize("count", [2, 10, 50])
def test_exactly_one_of_many_proceeds(tmp_path: Path, count: int) -> None:
    command = [sys.executable, "-c", CROWD, str(tmp_path), str(count)]
    codes = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert sorted(codes) == ["0"] + ["2"] * (count - 1)


@pytest.mark.parametrize(
    "extra",
    [
        "import subprocess; child = subprocess.Popen(['sleep', '30']).pid",
        "import os; child = os.fork()\nif not child: time.sleep(30); os._exit(0)",
        "import os; child = os.posix_spawn('/bin/sleep', ['sleep', '30'], {})",
    ],
    ids=["subprocess", "fork", "spawn"],
)
def test_children_that_outlive_the_holder_do_not_keep_the_lock(tmp_path: Path, extra: str) -> None:
    child = start_holder(tmp_path, extra + "\nPath(sys.argv[1], 'child').write_text(str(child))")
    stop(child)
    survivor = int((tmp_path / "child").read_text())
    os.kill(survivor, 0)
    try:
        RunLock(tmp_path).acquire().release()
    finally:
        os.kill(survivor, signal.SIGKILL)


def test_a_child_forked_just_before_its_parent_died_gets_time_to_let_go(tmp_path: Path) -> None:
    # Handlers run in the order of registration: this one, registered before the import, holds the lock's own up.
    delay = "import os; os.register_at_fork(after_in_child=lambda: time.sleep(0.2))\nfrom intrigue.run.lock"
    fork = "child = os.fork()\nif not child: time.sleep(30); os._exit(0)"
    note = "Path(sys.argv[1], 'child').write_text(str(child))"
    script = HOLDER.replace("from intrigue.run.lock", delay, 1).format(extra=f"{fork}\n{note}")
    child = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    stop(child)
    try:
        RunLock(tmp_path).acquire().release()
    finally:
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


def test_release_and_take_again(tmp_path: Path) -> None:
    first, second = RunLock(tmp_path, "one"), RunLock(tmp_path, "two")
    with first:
        assert read_holder(tmp_path / LOCK_NAME)["command"] == "one"
        with pytest.raises(ConfigError):
            second.acquire()
    first.release()
    with second:
        assert read_holder(tmp_path / LOCK_NAME)["command"] == "two"
    assert not second.is_held


def test_a_removed_lock_file_does_not_make_two_holders_of_one_file(tmp_path: Path) -> None:
    first = RunLock(tmp_path).acquire()
    os.unlink(tmp_path / LOCK_NAME)
    with RunLock(tmp_path), pytest.raises(ConfigError):
        RunLock(tmp_path).acquire()
    first.release()


def test_a_lock_file_exchanged_between_open_and_lock_is_not_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock
    calls = []

    def exchange_first(descriptor: int, operation: int) -> None:
        if not calls:
            os.unlink(tmp_path / LOCK_NAME)
        calls.append(descriptor)
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", exchange_first)
    with RunLock(tmp_path), pytest.raises(ConfigError):
        RunLock(tmp_path).acquire()
    assert len(calls) == 3


def test_the_lock_moves_with_the_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with RunLock(tmp_path / "a"):
        (tmp_path / "a").rename(tmp_path / "b")
        with pytest.raises(ConfigError):
            RunLock(tmp_path / "b").acquire()


def test_a_garbled_lock_file_still_gives_a_message_soon(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        (tmp_path / LOCK_NAME).write_bytes(b"\xff[" * 1000)
        began = time.monotonic()
        with pytest.raises(ConfigError, match="in use by another process"):
            RunLock(tmp_path).acquire()
        assert time.monotonic() - began < 5


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("keep")
    (tmp_path / LOCK_NAME).symlink_to(tmp_path / "precious")
    with pytest.raises(StorageError):
        RunLock(tmp_path).acquire()
    assert (tmp_path / "precious").read_text() == "keep"
