"""`intrigue bench env`: how fast a pool of environments steps, beside what the environment alone can do."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro

from intrigue.bench.env_rates import PoolRate, bare_rate, pool_rate
from intrigue.bench.machine import machine
from intrigue.envs.make import EnvMaker
from intrigue.envs.pool.config import PoolConfig, cores, problems, worker_count
from intrigue.errors import ConfigError, Problem
from intrigue.run.outputs import require_writable, write_text

SWEEP_SECONDS = 75.0  # No further setting is begun after this; one takes at most about ten seconds.
HEADER = f"{'workers':>8}{'groups':>8}{'pin':>6}{'steps/s':>11}{'of bare':>9}{'start s':>9}{'peak MiB':>10}\n"


def command(
    env: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV", help="an id, such as atari/Breakout")],
    envs: Annotated[int, tyro.conf.arg(metavar="N", help="environments")] = 128,
    workers: Annotated[int, tyro.conf.arg(metavar="W", help="processes; 0 none, -1 one per core")] = -1,
    groups: Annotated[int, tyro.conf.arg(metavar="G", help="groups that step in turn")] = 2,
    seconds: Annotated[float, tyro.conf.arg(metavar="S", help="how long each is timed")] = 4.0,
    pin: Annotated[bool, tyro.conf.arg(help="keep every process on a core of its own")] = False,
    sweep: Annotated[
        tyro.conf.FlagCreatePairsOff[bool],
        tyro.conf.arg(help="try several workers, groups and pinning, within 90 seconds"),
    ] = False,
    json_file: Annotated[
        Path | None, tyro.conf.arg(name="json", metavar="FILE", help="write the figures as JSON")
    ] = None,
) -> int:
    """Agent steps a second of a pool under random actions, and of the bare environment: as many processes with one
    environment each and no pool. Of Atari the bare environment is the emulator alone, four frames a step, without
    pictures. Both are timed in turns. start is until all environments are built and reset.

    Examples:
      intrigue bench env atari/Breakout
      intrigue bench env atari/Breakout --envs 8 --workers 2 --groups 2 --seconds 10 --json breakout.json
      intrigue bench env atari/Breakout --sweep
      intrigue bench env rooms --envs 16 --workers 0 --groups 1
    """
    cfg = checked(env, envs, workers, groups, seconds, pin)
    require_writable(json=json_file)
    count = max(1, worker_count(cfg))
    # Half before and half after: a shared machine is not equally fast twice.
    before = bare_rate(env, count, pin, seconds / 2)
    sys.stdout.write(f"{env}, {envs} environments, {len(cores())} cores\n{HEADER}")
    rows = []
    for setting in settings(cfg) if sweep else [cfg]:
        rows.append(pool_rate(env, setting, seconds))
        sys.stdout.write(line(rows[-1], before))
        sys.stdout.flush()
    bare = (before + bare_rate(env, count, pin, seconds / 2)) / 2
    sys.stdout.write(told(rows, bare, count))
    if json_file is not None:
        write_text(json_file, json.dumps(figures(env, cfg, rows, bare, count), indent=1) + "\n")
    return 0


def checked(env: str, envs: int, workers: int, groups: int, seconds: float, pin: bool) -> PoolConfig:
    """The pool's settings, refused with everything that is wrong with them."""
    least = {"envs": (envs, 1), "workers": (workers, -1), "groups": (groups, 1)}
    wrong = [
        Problem(name, f"{value}, at least {low} is needed.") for name, (value, low) in least.items() if value < low
    ]
    if not seconds > 0:
        wrong.append(Problem("seconds", f"{seconds:g}, more than 0 is needed."))
    cfg = PoolConfig(num_envs=envs, workers=workers, groups=groups, pin=pin)
    wrong += [] if wrong else problems(cfg)
    if wrong:
        raise ConfigError(wrong)
    EnvMaker(env, {}).check()
    return cfg


def settings(cfg: PoolConfig) -> Iterator[PoolConfig]:
    """Other ways to step as many environments, the most promising first, as far as time allows."""
    began, every = time.monotonic(), len(cores())
    counts = dict.fromkeys(min(count, cfg.num_envs) for count in (every, every - 1, every // 2) if count > 0)
    for workers, groups, pin in itertools.product(counts, (2, 1, 4), (False, True)):
        setting = PoolConfig(num_envs=cfg.num_envs, workers=workers, groups=groups, pin=pin)
        if not problems(setting) and time.monotonic() - began < SWEEP_SECONDS:
            yield setting


def line(row: PoolRate, bare: float) -> str:
    """The row as text, under HEADER."""
    return (
        f"{row.workers:>8}{row.groups:>8}{'yes' if row.pin else 'no':>6}{row.steps_per_second:>11,.0f}"
        f"{row.steps_per_second / bare:>9.2f}{row.start_seconds:>9.2f}{row.peak_host_mib:>10.0f}\n"
    )


def told(rows: list[PoolRate], bare: float, count: int) -> str:
    """What stands under the table."""
    best = max(rows, key=lambda row: row.steps_per_second)
    setting = f"--workers {best.workers} --groups {best.groups} {'--pin' if best.pin else '--no-pin'}"
    return (
        f"bare environment, {count} processes: {bare:,.0f} steps/s before and after\n"
        f"best pool: {best.steps_per_second:,.0f} steps/s, {best.steps_per_second / bare:.2f} of bare ({setting})\n"
    )


def figures(env: str, cfg: PoolConfig, rows: list[PoolRate], bare: float, count: int) -> dict[str, Any]:
    """Everything that was measured."""
    best = max(rows, key=lambda row: row.steps_per_second)
    return {
        "target": "env",
        **machine(torch.device("cpu")),
        "cores": len(cores()),
        "env": env,
        "envs": cfg.num_envs,
        "bare_processes": count,
        "bare_steps_per_second": bare,
        "ratio": best.steps_per_second / bare,
        **asdict(best),
        "rows": [asdict(row) for row in rows],
    }
