"""`intrigue bench train`: how fast a preset trains, beside what its environments alone could do."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

import tyro

from intrigue.bench import train_off_policy, train_on_policy
from intrigue.config.compatibility import learns_from_replay
from intrigue.config.run import resolve
from intrigue.errors import ConfigError, Problem
from intrigue.presets import preset_layer
from intrigue.run.outputs import require_writable, write_text
from intrigue.seeding import parse_seeds

ROLLOUTS = 6  # timed, if no other number is asked for


def command(
    env: Annotated[
        tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[ENV]", help="the preset's own if none")
    ] = None,
    preset: Annotated[str, tyro.conf.arg(metavar="P", help="what is trained")] = "nnm-atari",
    reward: Annotated[str | None, tyro.conf.arg(metavar="R", help="another bonus in its place")] = None,
    rollouts: Annotated[
        int | None, tyro.conf.arg(metavar="N", help="rollouts timed, after two that are not; 6 if none is given")
    ] = None,
    updates: Annotated[
        int | None, tyro.conf.arg(metavar="N", help="updates timed, of agents with a replay; as the device allows")
    ] = None,
    seeds: Annotated[
        str | None, tyro.conf.arg(metavar="A:B", help="several seeds side by side, of agents with a replay")
    ] = None,
    envs: Annotated[int | None, tyro.conf.arg(metavar="N", help="environments")] = None,
    workers: Annotated[int | None, tyro.conf.arg(metavar="W", help="processes that step them; -1 one per core")] = None,
    groups: Annotated[int | None, tyro.conf.arg(metavar="G", help="groups that step in turn")] = None,
    device: Annotated[Literal["auto", "cpu", "cuda"], tyro.conf.arg(help="where")] = "auto",
    execution: Annotated[Literal["auto", "plain", "compile", "graph"], tyro.conf.arg(help="how updates run")] = "auto",
    json_file: Annotated[
        Path | None, tyro.conf.arg(name="json", metavar="FILE", help="write the figures as JSON")
    ] = None,
) -> int:
    """How fast a preset trains: agent steps a second, the ratio to the same pool under random actions in the same run,
    and the share of each phase. Memory is the peak of this process and its workers, and of the GPU.

    With a replay: milliseconds of an update, after the replay was filled by random steps, and how long the preset's
    whole run would take at that rate.

    Examples:
      intrigue bench train --preset nnm-atari
      intrigue bench train atari/Pong --preset nnm-atari-small --rollouts 3 --json speed.json
      intrigue bench train dmc/jaco --preset nnm-urlb --seeds 0:4 --updates 20
    """
    given = {
        "env": env, "reward": reward, "pool.num_envs": envs, "pool.workers": workers, "pool.groups": groups,
        "device": device, "run.execution": execution, "curiosity.warmup_steps": None,
    }  # fmt: skip
    cfg = resolve(preset_layer(preset), {name: value for name, value in given.items() if value is not None})
    from_replay = learns_from_replay(cfg.agent_name)
    _refuse(cfg.agent_name, from_replay, rollouts, updates, seeds)
    require_writable(json=json_file)
    if from_replay:
        numbers = parse_seeds(seeds) if seeds is not None else [cfg.run.seed]
        figures = train_off_policy.measured(cfg, preset, numbers, updates)
        told = train_off_policy.told(figures)
    else:
        figures = train_on_policy.measured(cfg, preset, rollouts or ROLLOUTS)
        told = train_on_policy.told(figures)
    sys.stdout.write(told)
    if json_file is not None:
        write_text(json_file, json.dumps(figures, indent=1) + "\n")
    return 0


def _refuse(agent: str, from_replay: bool, rollouts: int | None, updates: int | None, seeds: str | None) -> None:
    """Raise ConfigError with everything that does not go with the way the agent learns."""
    wrong = [
        Problem(name, f"{value}, at least 1 is needed.")
        for name, value in (("rollouts", rollouts), ("updates", updates))
        if value is not None and value < 1
    ]
    foreign = {"rollouts": rollouts} if from_replay else {"updates": updates, "seeds": seeds}
    source, instead = ("replay", "--updates") if from_replay else ("its rollouts", "--rollouts")
    wrong += [
        Problem(name, f"{agent} learns from {source}, which is not measured so. Use {instead}.")
        for name, value in foreign.items()
        if value is not None
    ]
    if wrong:
        raise ConfigError(wrong)
