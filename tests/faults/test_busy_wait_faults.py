"""Faults while processes busy-wait for each other: named, timed out and ended as when they sleep.

Both sides busy-wait for a minute here, so that whatever happens, happens during a busy wait.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from test_pool_faults import (
    AT_STEP,
    NUM_ENVS,
    PARENT,
    PLUGIN,
    SEED,
    VICTIM,
    _nothing_stays_behind,
    alive,
    children,
    run_in_turn,
    run_on,
    wait_until,
)

from intrigue.envs.pool import messages
from intrigue.envs.pool.config import PoolConfig
from intrigue.envs.pool.pool import Pool, make_pool
from intrigue.envs.registry import ENVS
from intrigue.errors import EnvironmentFault, RunError
from intrigue.seeding import derive_seed

__all__ = ["_nothing_stays_behind"]

BUSY_WAIT_SECONDS = 60.0
LIMIT_SECONDS = 1.0
STARING = f"""
from intrigue.envs.pool import messages
setattr(messages, "BUSY_WAIT_SECONDS", {BUSY_WAIT_SECONDS})
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The faulty environment, whose worker busy-waits for a minute; this process does too."""
    path = tmp_path_factory.mktemp("staring") / "staring_env.py"
    path.write_text(PLUGIN.read_text().replace('"faulty"', '"staring"') + STARING)
    before = list(ENVS._extra_files)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "BUSY_WAIT_SECONDS", BUSY_WAIT_SECONDS)
        yield path
    ENVS._extra_files[:] = before


def staring_pool(plugin: Path, mode: str, groups: int = 1) -> Pool:
    cfg = PoolConfig(NUM_ENVS, 2, groups, step_timeout_seconds=LIMIT_SECONDS, start_timeout_seconds=20.0)
    given = {"mode": mode, "victim": derive_seed(SEED, "env", VICTIM), "at": AT_STEP}
    return make_pool("staring", given, cfg, SEED, [plugin], busy_wait=True)


FAULTS = [
    ("raise", 1, r"index 3, step 4: raised LookupError: the level is gone"),
    ("nan-obs", 2, r"index 3, step 4: observation: expected finite numbers, got nan"),
    ("words", 1, r"index 3, step 4: its worker process \d+ exited with code 7\.\n.*last words:\nso long on stdout"),
    ("kill", 2, r"index 3, step 4: its worker process \d+ was killed by SIGKILL"),
    ("sleep", 2, r"index 3, step 4: no answer within 1 seconds"),
    ("sleep", 1, r"index 3, step 4: no answer within 1 seconds"),
]


@pytest.mark.parametrize(("mode", "groups", "text"), FAULTS)
def test_a_fault_in_a_step_is_named(plugin: Path, mode: str, groups: int, text: str) -> None:
    pool = staring_pool(plugin, mode, groups)
    pool.reset()
    begun = time.monotonic()
    with pytest.raises(EnvironmentFault, match=rf"^environment staring, {text}"):
        run_in_turn(pool)
    assert time.monotonic() - begun < 3 * LIMIT_SECONDS
    with pytest.raises(RunError, match="closed"):
        pool.receive(0)


@pytest.mark.parametrize(
    ("number", "text"), [(signal.SIGSTOP, "no answer within 1 seconds"), (signal.SIGKILL, "was killed by SIGKILL")]
)
def test_a_worker_stopped_or_killed_while_it_busy_waits(plugin: Path, number: signal.Signals, text: str) -> None:
    before = children()
    pool = staring_pool(plugin, "none")
    run_on(pool)
    os.kill(max(children() - before), number)
    begun = time.monotonic()
    with pytest.raises(EnvironmentFault, match=rf"index \d to \d, waiting after step 9: .*{text}"):
        pool.step(np.zeros(NUM_ENVS, dtype=np.int64))
    assert time.monotonic() - begun < 3 * LIMIT_SECONDS


def test_a_worker_that_busy_waits_answers_other_requests_and_closes(plugin: Path) -> None:
    pool = staring_pool(plugin, "none")
    run_on(pool)
    assert [state["blob"].nbytes for state in pool.snapshot()["envs"]] == [2_400_000] * NUM_ENVS
    run_on(pool)
    begun = time.monotonic()
    pool.close()
    assert time.monotonic() - begun < LIMIT_SECONDS


@pytest.mark.parametrize("where", ["main", "thread"])
def test_workers_that_busy_wait_end_with_a_killed_parent(plugin: Path, tmp_path: Path, where: str) -> None:
    """From the main thread the kernel ends them; from another, they notice it themselves."""
    script = tmp_path / "parent.py"
    text = PARENT.replace('"faulty"', '"staring"').replace("[plugin])", "[plugin], busy_wait=True)")
    script.write_text(text.replace(".reset()\n", ".reset()\npools[0].step(np.zeros(5, dtype=np.int64))\n"))
    command = [sys.executable, str(script), str(plugin), "idle", where]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        workers = children(of=parent.pid)
        assert len(workers) == 2
        before = [time.clock_gettime((~pid << 3) | 2) for pid in workers]
        time.sleep(0.3)
        used = [time.clock_gettime((~pid << 3) | 2) - each for pid, each in zip(workers, before, strict=True)]
        assert min(used) > 0.02, "they busy-wait"
        parent.kill()
    assert wait_until(lambda: not any(alive(pid) for pid in workers))
