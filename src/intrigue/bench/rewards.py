"""`intrigue bench rewards`: what each reward costs, as a table and as JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import tyro

from intrigue.bench.machine import machine
from intrigue.bench.reward_costs import ENVS, SPACES, STEPS, Cost, costs
from intrigue.cli.places import refuse_files, write_text
from intrigue.errors import ConfigError, Problem, unknown_name
from intrigue.rewards.registry import REWARDS
from intrigue.training.build import pick_device

HEADER = f"{'space':<8}{'reward':<15}{'score µs':>10}{'learn µs':>10}{'share':>8}{'peak MiB':>10}\n"


def command(
    names: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        tyro.conf.arg(metavar="[REWARD ...]", help="rewards to measure; all of them if none is named"),
    ] = (),
    space: Annotated[Literal["all", "pixels", "vector"], tyro.conf.arg(help="observations")] = "all",
    device: Annotated[Literal["auto", "cpu", "cuda"], tyro.conf.arg(help="where")] = "auto",
    rounds: Annotated[int, tyro.conf.arg(metavar="N", help="timed calls of each")] = 5,
    json_file: Annotated[
        Path | None, tyro.conf.arg(name="json", metavar="FILE", help="write the table as JSON")
    ] = None,
) -> int:
    """What each reward costs, per transition of a rollout, with its default settings.

    score is normalising and scoring, learn all epochs of its models and its memories, share both over both and PPO's
    acting and learning (no environment), peak the memory needed above what was held before.

    Examples:
      intrigue bench rewards
      intrigue bench rewards rnd nnm --space vector --json costs.json
    """
    known = REWARDS.names()
    wrong = [
        Problem("reward", unknown_name(name, known, "See `intrigue list rewards`."))
        for name in names
        if name not in known
    ]
    if rounds < 1:
        wrong.append(Problem("rounds", f"{rounds}, at least 1 is needed."))
    if wrong:
        raise ConfigError(wrong)
    refuse_files(json=json_file)
    chosen = pick_device(device)
    spaces = tuple(SPACES) if space == "all" else (space,)
    # A mixture without an expression has nothing to measure.
    measured = names or tuple(name for name in known if name != "mix")
    rows: list[Cost] = []
    sys.stderr.write(f"rollouts of {STEPS} x {ENVS[chosen.type]} transitions on {chosen.type}\n")
    sys.stdout.write(HEADER)
    for row in costs(measured, spaces, chosen, rounds):
        rows.append(row)
        sys.stdout.write(line(row))
        sys.stdout.flush()
    if json_file is not None:
        about = {"target": "rewards", **machine(chosen), "rollout": [STEPS, ENVS[chosen.type]]}
        write_text(json_file, json.dumps({**about, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")
    return 0


def line(row: Cost) -> str:
    """The row as text, under HEADER."""
    peak = "-" if row.peak_mib is None else f"{row.peak_mib:.0f}"
    return f"{row.space:<8}{row.reward:<15}{row.score_us:>10.1f}{row.learn_us:>10.1f}{row.share:>8.1%}{peak:>10}\n"
