"""`intrigue bench env` as its user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from intrigue.bench.env import settings
from intrigue.bench.env_rates import SETTLING, random_actions, stepping
from intrigue.cli import main
from intrigue.envs.pool.config import PoolConfig, problems
from intrigue.envs.pool.pool import make_pool
from intrigue.spaces import ActionSpec


def test_table_and_json_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "env.json"
    arguments = ["bench", "env", "atari/Breakout", "--envs", "2", "--workers", "1", "--groups", "2", "--seconds", "0.4"]
    assert main([*arguments, "--json", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    written = json.loads(file.read_text())
    workers, groups, pin, rate, _, start, peak = lines[2].split()
    assert (workers, groups, pin) == ("1", "2", "no")
    assert rate.replace(",", "") == f"{written['steps_per_second']:.0f}"
    assert (start, peak) == (f"{written['start_seconds']:.2f}", f"{written['peak_host_mib']:.0f}")
    assert written["target"] == "env" and written["rows"][0]["workers"] == written["workers"] == 1
    assert written["ratio"] == pytest.approx(written["steps_per_second"] / written["bare_steps_per_second"])
    assert f"{written['bare_steps_per_second']:,.0f} steps/s" in lines[3]
    # Loose enough for a busy machine: pictures cost something, and less than the emulator.
    assert 0.2 < written["ratio"] < 1.3
    assert written["peak_host_mib"] > 100, "this process has torch, and a worker has NumPy"


def test_a_sweep_tries_settings_that_the_environments_allow(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bench", "env", "rooms", "--envs", "2", "--workers", "1", "--seconds", "0.05", "--sweep"]
    assert main(arguments) == 0
    rows = [line.split()[:3] for line in capsys.readouterr().out.splitlines()[2:-2]]
    assert len(rows) == len({tuple(row) for row in rows}) >= 2
    for setting in settings(PoolConfig(num_envs=128)):
        assert not problems(setting)
        assert setting.num_envs == 128


def test_wrong_arguments_are_told_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "env", "rooms", "--envs", "0", "--seconds", "0"]) == 2
    told = capsys.readouterr().err
    assert "envs: 0" in told and "seconds: 0" in told
    assert main(["bench", "env", "atari/Brekout"]) == 2
    assert "Did you mean 'atari/Breakout'?" in capsys.readouterr().err
    assert main(["bench", "env", "rooms", "--envs", "2", "--workers", "2", "--groups", "2"]) == 2
    assert "groups: 2" in capsys.readouterr().err


@pytest.mark.parametrize("groups", [1, 3])
def test_a_rate_counts_the_steps_of_every_environment(groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that moves by 1/8 second at every look: 15 looks before two seconds have passed, two more at the end."""
    ticks = iter(range(10_000))
    monkeypatch.setattr("intrigue.bench.env_rates.time.perf_counter", lambda: next(ticks) / 8)
    pool = make_pool("rooms", {}, PoolConfig(num_envs=6, workers=0, groups=groups), 0)
    pool.reset()
    rate = stepping(pool, 2.0)
    rounds = pool.snapshot()["steps"] - SETTLING - 1  # The last order is received after the clock has stopped.
    assert rounds == 15
    assert rate == pytest.approx(6 * 15 / (17 / 8))


def test_the_bare_environment_needs_no_torch() -> None:
    code = "import sys, intrigue.bench.env_bare; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_random_actions_cover_their_range() -> None:
    discrete = random_actions(ActionSpec("discrete", sizes=(3,)), 200, 0)
    assert discrete.shape == (200,)
    assert set(discrete.tolist()) == {0, 1, 2}
    several = random_actions(ActionSpec("multi-discrete", sizes=(2, 4)), 200, 0)
    assert several.shape == (200, 2)
    assert several.max(axis=0).tolist() == [1, 3]
    numbers = random_actions(ActionSpec("continuous", low=(-2.0, -np.inf), high=(0.0, np.inf)), 500, 0)
    assert numbers.dtype == np.float32
    np.testing.assert_allclose([numbers.min(axis=0), numbers.max(axis=0)], [[-2, -1], [0, 1]], atol=0.05)
