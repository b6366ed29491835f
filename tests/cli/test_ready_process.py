"""The forks that other tests take for commands behave as commands do: streams, folder, variables, codes, death."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

import ready_process
from conftest import TINY
from intrigue.errors import ConfigError
from intrigue.run.lock import RunLock

# Says what it sees, on both streams, then ends as asked.
LOOK = """import os, sys
print(sys.stdin.read() + os.getcwd(), os.environ["SEEN"], "HOME" in os.environ)
print(os.getpid(), file=sys.stderr, flush=True)
"""


def page(text: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """One Python block, run as a page of the documentation is."""
    return ready_process.run("page", cwd=cwd, env=variables, stdin=json.dumps([["p.md", 1, "python", text]]))


def test_a_fork_has_its_own_folder_variables_and_streams(tmp_path: Path) -> None:
    first, second = (page(LOOK, tmp_path, SEEN=each) for each in ("one", "two"))
    assert [each.returncode for each in (first, second)] == [0, 0]
    assert first.stdout.splitlines()[-1] == f"{tmp_path} one False"
    assert second.stdout.splitlines()[-1] == f"{tmp_path} two False"
    assert first.stderr != second.stderr and os.getpid() not in map(int, (first.stderr, second.stderr))


@pytest.mark.parametrize(
    ("text", "code"),
    [("1 / 0", 1), ("import os; os._exit(7)", 7), ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL)],
)
def test_a_fork_ends_with_the_programs_code(text: str, code: int, tmp_path: Path) -> None:
    assert page(text, tmp_path).returncode == code


def test_a_command_of_the_shell_passes_streams_and_codes_and_dies_with_who_called_it(tmp_path: Path) -> None:
    path = f"{ready_process.folder_of_commands()}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    text = "intrigue list agents | grep -c ppo; intrigue nothing; echo $?"
    done = subprocess.run(["bash", "-c", text], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "1\n2\n"
    assert "unknown name 'nothing'" in done.stderr
    tiny = [f"--{key.replace('_', '-')}={value}" for key, value in TINY.items() if key != "steps"]
    run = tmp_path / "run"
    endless = ["intrigue", "train", *tiny, "--steps", "1e9", "--out", str(run), "--quiet"]
    with subprocess.Popen(endless, env=environment) as caller:
        while not (run / "metrics.csv").exists():
            assert caller.poll() is None
            time.sleep(0.02)
        first = ready_process.run("intrigue", ["resume", run, "--quiet"])
        assert first.returncode == 2 and "pid" in first.stderr, "the program holds its folder"
        caller.kill()
    assert any(_taken_up(run) for _ in range(200)), "nobody holds it any more"


def _taken_up(run: Path) -> bool:
    """Whether the folder is free; a killed process takes a moment."""
    time.sleep(0.05)
    with contextlib.suppress(ConfigError), RunLock(run, "test"):
        return True
    return False
