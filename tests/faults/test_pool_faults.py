"""Environments that raise, lie, die or hang: the error names them, and no process or memory stays behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intrigue.envs.pool.config import PoolConfig
from intrigue.envs.pool.pool import Pool, make_pool
from intrigue.envs.registry import ENVS
from intrigue.errors import ConfigError, EnvironmentFault, RunError
from intrigue.seeding import derive_seed
from places import PLUGINS

SEED = 11
NUM_ENVS = 5
VICTIM = 3  # Index of the environment that misbehaves, at its own step AT_STEP.
AT_STEP = 4

PLUGIN = PLUGINS / "faulty_env.py"


@pytest.fixture(scope="module")
def plugin() -> Any:
    before = list(ENVS._extra_files)
    yield PLUGIN
    ENVS._extra_files[:] = before


def faulty_pool(
    plugin: Path, mode: str, workers: int = 2, limit: float = 60.0, groups: int = 1, **options: Any
) -> Pool:
    cfg = PoolConfig(
        num_envs=NUM_ENVS,
        workers=workers,
        groups=groups,
        step_timeout_seconds=limit,
        start_timeout_seconds=max(limit, 20),
    )
    given = {"mode": mode, "victim": derive_seed(SEED, "env", VICTIM), "at": AT_STEP, **options}
    return make_pool("faulty", given, cfg, SEED, [plugin])


def run_on(pool: Pool, steps: int = 8) -> None:
    pool.reset()
    for _ in range(steps):
        pool.step(np.zeros(NUM_ENVS, dtype=np.int64))


def run_in_turn(pool: Pool, steps: int = 8) -> None:
    zeros = [np.zeros(rows.stop - rows.start, dtype=np.int64) for rows in pool.groups]
    for group, action in enumerate(zeros):
        pool.send(group, action)
    for _ in range(steps):
        for group, action in enumerate(zeros):
            pool.receive(group)
            pool.send(group, action)


def parents() -> dict[int, tuple[int, str]]:
    """Parent and state of every process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found[int(path.parent.name)] = (int(fields[1]), fields[0])
    return found


def children(of: int | None = None) -> set[int]:
    """Child processes, zombies included: an unreaped child counts."""
    parent = os.getpid() if of is None else of
    return {pid for pid, (above, _) in parents().items() if above == parent}


def alive(pid: int) -> bool:
    """Whether a process still runs; one that only waits for its new parent to look does not."""
    state = parents().get(pid)
    return state is not None and state[1] != "Z"


def wait_until(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture(autouse=True)
def _nothing_stays_behind() -> Any:
    before = children()
    descriptors = len(os.listdir("/proc/self/fd"))
    yield
    gc.collect()
    assert children() <= before
    assert len(os.listdir("/proc/self/fd")) <= descriptors


LIES = [
    ("raise", r"step 4: raised LookupError: the level is gone"),
    ("raise-reset", r"in reset before its first step: raised LookupError: no level here"),
    ("raise-later-reset", r"in reset after step 4: raised LookupError: no level here"),
    ("nan-reset", r"in reset before its first step: observation: expected finite numbers, got nan"),
    ("nan-obs", r"step 4: observation: expected finite numbers, got nan at position \(1,\)"),
    ("shape", r"step 4: observation: expected an array of float32 of shape \(2,\), got float32 of shape \(3,\)"),
    ("dtype", r"step 4: observation: expected an array of float32 of shape \(2,\), got float64 of shape \(2,\)"),
    ("list", r"step 4: observation: .* got list"),
    ("nan-reward", r"step 4: reward: expected one finite real number, got nan"),
    ("word-reward", r"step 4: reward: expected one finite real number, got str '1'"),
    ("terminated", r"step 4: terminated: expected True or False, got int 1"),
    ("truncated", r"step 4: truncated: expected True or False, got NoneType None"),
    ("place", r"step 4: place: expected a number from -1 to below 2, got 2"),
    ("short", r"step 4: raised ValueError"),
]


@pytest.mark.parametrize(("mode", "text"), LIES)
def test_a_lie_is_named_in_this_process(plugin: Path, mode: str, text: str) -> None:
    pool = faulty_pool(plugin, mode, workers=0)
    with pytest.raises(EnvironmentFault, match=rf"^environment faulty, index {VICTIM}, {text}"):
        run_on(pool)
    with pytest.raises(RunError, match="closed"):
        pool.reset()


DEATHS = [
    *[pair for pair in LIES if pair[0] in ("raise", "nan-obs")],
    (
        "words",
        r"step 4: its worker process \d+ exited with code 7\.\n.*last words:\nso long on stdout\nso long on stderr",
    ),
    ("exit", r"step 4: its worker process \d+ exited with code 3"),
    ("kill", r"step 4: its worker process \d+ was killed by SIGKILL"),
    ("segfault", r"step 4: its worker process \d+ was killed by SIGSEGV"),
]


@pytest.mark.parametrize(("mode", "text"), DEATHS)
def test_a_death_is_named_across_processes(plugin: Path, mode: str, text: str) -> None:
    pool = faulty_pool(plugin, mode)
    with pytest.raises(EnvironmentFault, match=rf"^environment faulty, index {VICTIM}, {text}"):
        run_on(pool)
    with pytest.raises(RunError, match="closed"):
        pool.step(np.zeros(NUM_ENVS, dtype=np.int64))


@pytest.mark.parametrize("workers", [0, 1])
def test_the_traceback_of_the_environment_is_kept(plugin: Path, workers: int) -> None:
    with pytest.raises(EnvironmentFault, match=r"in step\n.*raise LookupError\(\"the level is gone\"\)"):
        run_on(faulty_pool(plugin, "raise", workers))


GROUPED = [
    ("raise", r"index 3, step 4: raised LookupError"),
    ("exit", r"index 3, step 4: its worker process \d+ exited with code 3"),
    ("close", r"index 1, 3 to 4, waiting after step \d: its worker process \d+ exited"),
    ("sleep", r"index 3, step 4: no answer within 1 seconds"),
]


@pytest.mark.parametrize(("mode", "text"), GROUPED)
def test_a_fault_in_one_group_is_named_while_another_is_under_way(plugin: Path, mode: str, text: str) -> None:
    """Groups are environments 0 to 1 and 2 to 4; the second worker has 1 of the first and 3 to 4 of the second."""
    pool = faulty_pool(plugin, mode, limit=1.0, groups=2)
    pool.reset()
    with pytest.raises(EnvironmentFault, match=rf"^environment faulty, {text}"):
        run_in_turn(pool)
    with pytest.raises(RunError, match="closed"):
        pool.receive(0)


def test_a_worker_that_hangs_up_is_named(plugin: Path) -> None:
    with pytest.raises(EnvironmentFault, match=r"index 2 to 4, waiting after step 4: its worker process \d+ exited"):
        run_on(faulty_pool(plugin, "close"))


@pytest.mark.parametrize(
    ("mode", "error", "text"),
    [
        ("raise-build", EnvironmentFault, r"index 0, while it was built: raised LookupError: no simulator here"),
        ("exit-build", EnvironmentFault, r"index \d, while it was built: its worker process \d+ exited with code 9"),
        ("config-build", ConfigError, "not like this"),
    ],
)
def test_a_failing_constructor_is_named(plugin: Path, mode: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        faulty_pool(plugin, mode, workers=1)


def test_a_hanging_constructor_is_ended(plugin: Path) -> None:
    cfg = PoolConfig(num_envs=2, workers=2, start_timeout_seconds=3.0)
    with pytest.raises(
        EnvironmentFault, match=r"while it was built: no answer within 3 seconds.*start_timeout_seconds"
    ):
        make_pool("faulty", {"mode": "sleep-build"}, cfg, SEED, [plugin])


def test_a_hang_is_ended_in_time(plugin: Path) -> None:
    pool = faulty_pool(plugin, "sleep", limit=1.0)
    begun = time.monotonic()
    with pytest.raises(EnvironmentFault, match=rf"index {VICTIM}, step 4: no answer within 1 seconds"):
        run_on(pool)
    assert time.monotonic() - begun < 3.0


def test_what_an_environment_started_ends_with_it(plugin: Path, tmp_path: Path) -> None:
    note = tmp_path / "child"
    with pytest.raises(EnvironmentFault, match="no answer"):
        run_on(faulty_pool(plugin, "child", limit=1.0, note=str(note)))
    assert wait_until(lambda: not alive(int(note.read_text())))


@pytest.mark.parametrize(
    ("number", "text"), [(signal.SIGSTOP, "no answer within 1 seconds"), (signal.SIGKILL, "was killed by SIGKILL")]
)
def test_a_worker_stopped_or_killed_from_outside(plugin: Path, number: signal.Signals, text: str) -> None:
    before = children()
    pool = faulty_pool(plugin, "none", limit=1.0)
    run_on(pool)
    os.kill(max(children() - before), number)
    with pytest.raises(EnvironmentFault, match=rf"index \d to \d, waiting after step 9: .*{text}"):
        pool.step(np.zeros(NUM_ENVS, dtype=np.int64))


def test_a_stopped_worker_that_takes_no_message_is_ended(plugin: Path) -> None:
    before = children()
    pool = faulty_pool(plugin, "none", limit=1.0)
    run_on(pool)
    saved = pool.snapshot()
    for pid in children() - before:
        os.kill(pid, signal.SIGSTOP)
    with pytest.raises(EnvironmentFault, match="index 0 to 1, waiting after step 8: no answer within 1 seconds"):
        pool.restore(saved)


def test_workers_leave_signals_of_the_job_to_their_parent(plugin: Path) -> None:
    before = children()
    pool = faulty_pool(plugin, "none")
    run_on(pool)
    for pid in children() - before:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(pid, number)
    run_on(pool)
    pool.close()


def test_a_talkative_environment_blocks_nothing(plugin: Path) -> None:
    pool = faulty_pool(plugin, "flood", limit=10.0)
    run_on(pool)
    pool.close()


def test_large_snapshots_cross_and_failures_in_them_are_named(plugin: Path) -> None:
    pool = faulty_pool(plugin, "none")
    run_on(pool)
    saved = pool.snapshot()
    assert [state["blob"].nbytes for state in saved["envs"]] == [2_400_000] * NUM_ENVS
    with pytest.raises(EnvironmentFault, match=r"in restore after step 8: raised LookupError: nothing to load"):
        pool.restore(saved)
    pool = faulty_pool(plugin, "raise-snapshot")
    run_on(pool)
    with pytest.raises(EnvironmentFault, match=r"in snapshot after step 8: raised LookupError"):
        pool.snapshot()


def test_close_lets_environments_close_but_not_for_ever(plugin: Path, tmp_path: Path) -> None:
    note = tmp_path / "closed"
    pool = faulty_pool(plugin, "note-close", note=str(note))
    pool.reset()
    pool.close()
    assert note.read_text() == "closed " * NUM_ENVS
    pool = faulty_pool(plugin, "sleep-close")
    pool.reset()
    begun = time.monotonic()
    pool.close()
    pool.close()
    assert time.monotonic() - begun < 4.0


def test_a_forgotten_pool_ends_its_workers(plugin: Path) -> None:
    before = children()
    pool = faulty_pool(plugin, "none")
    pool.reset()
    assert len(children() - before) == 2
    del pool
    assert wait_until(lambda: children() <= before)


def test_an_interruption_in_a_step_ends_the_pool(plugin: Path) -> None:
    pool = faulty_pool(plugin, "sleep")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_on(pool)
    finally:
        signal.signal(signal.SIGALRM, old)
    with pytest.raises(RunError, match="closed"):
        pool.reset()


PARENT = """
import sys, threading, time
from pathlib import Path
import numpy as np
from intrigue.envs.pool.config import PoolConfig
from intrigue.envs.pool.pool import make_pool
from intrigue.seeding import derive_seed

plugin, mode, where = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
options = {"mode": mode, "victim": derive_seed(11, "env", 3)}
pools = []
build = lambda: pools.append(make_pool("faulty", options, PoolConfig(num_envs=5, workers=2), 11, [plugin]))
if where == "thread":
    thread = threading.Thread(target=build)
    thread.start()
    thread.join()
else:
    build()
pools[0].reset()
print("ready", flush=True)
while mode != "idle":
    pools[0].step(np.zeros(5, dtype=np.int64))
time.sleep(3600)
"""


@pytest.mark.parametrize(
    ("mode", "where", "stop"),
    [("idle", "main", False), ("none", "main", False), ("sleep", "thread", False), ("idle", "main", True)],
)
def test_workers_go_with_a_killed_parent(plugin: Path, tmp_path: Path, mode: str, where: str, stop: bool) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    command = [sys.executable, str(script), str(plugin), mode, where]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        workers = children(of=parent.pid)
        assert len(workers) == 2
        if mode == "sleep":
            time.sleep(0.3)
        for pid in workers if stop else ():
            os.kill(pid, signal.SIGSTOP)
        parent.kill()
    assert wait_until(lambda: not any(alive(pid) for pid in workers))


def test_workers_go_with_a_parent_that_ends_without_closing(plugin: Path, tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT.replace("time.sleep(3600)", "sys.exit(5)"))
    command = [sys.executable, str(script), str(plugin), "idle", "main"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stderr) == (5, "")
    marker = str(plugin)
    assert wait_until(lambda: not any(marker in text for text in command_lines()))


def command_lines() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_text())
        except OSError:
            continue
    return found
