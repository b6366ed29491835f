"""From a configuration to a run on disk: start or take up, log, save, stop. Nothing below it knows a path.

A run is whole at every instant: it appears with its first checkpoint, each later one is published before an older one
goes, results are flushed before the checkpoint that counts them, and are cut back to it when a run is taken up again.
Several seeds of one setting are `intrigue.run.multi_seed`'s.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch

from intrigue.config.plugins import plugin_files
from intrigue.config.run import RunConfig, flatten_json, resolve
from intrigue.errors import CheckpointError, ConfigError
from intrigue.ops.execution import pick_mode
from intrigue.ops.precision import resolve_matmul_dtype
from intrigue.run import checkpoint
from intrigue.run import create as birth
from intrigue.run.create import Staging
from intrigue.run.folder import (
    Run,
    RunFolder,
    clear_done,
    open_run,
    read_config,
    read_provenance,
    write_config,
    write_provenance,
)
from intrigue.run.lock import RunLock
from intrigue.run.logging.console import printable
from intrigue.run.logging.loggers import require
from intrigue.run.loop import drive
from intrigue.run.names import run_stem
from intrigue.run.provenance import provenance
from intrigue.run.session import LiveRun, finished, save_state
from intrigue.run.signals import StopRequest
from intrigue.training.build import build, pick_device
from intrigue.training.loops import AnyParts
from intrigue.training.pool_prestart import PrestartedPools

DEFAULT_ROOT = Path("runs")
Prepare: TypeAlias = Callable[[AnyParts], Mapping[str, Any]]
"""May change the parts of a new run before anything happens; what it gives goes into provenance.json."""


def start(cfg: RunConfig, *, out: Path | None = None, quiet: bool = False, prepare: Prepare | None = None) -> Run:
    """Train a new run to its last step."""
    cfg = settled(cfg)
    with StopRequest() as stop, contextlib.ExitStack() as stack:
        origin, command = origin_of(cfg), command_line()
        if out is None:
            stem = run_stem(cfg.env_id, cfg.reward_name, cfg.agent_name, cfg.run.seed)
            staging = birth.create_numbered(DEFAULT_ROOT, stem, cfg.to_json(), origin, command)
        else:
            staging = birth.create(out, cfg.to_json(), origin, command)
        stack.enter_context(staging)
        parts = stack.enter_context(contextlib.closing(bear(cfg, staging, prepare)))
        stop.raise_if_set("stopped before the run began; nothing was written")
        folder = staging.publish()
        run = stack.enter_context(contextlib.closing(LiveRun(folder, parts, cfg)))
        drive([run], stop, folder.path, quiet=quiet)
        return run.finish()


def resume(path: Path, *, steps: int | None = None, quiet: bool = False) -> Run:
    """Take a run up exactly where its newest whole checkpoint left it."""
    folder = open_run(path)
    with StopRequest() as stop, RunLock(folder.path, command_line()):
        run = take_up(folder, steps)
        if isinstance(run, Run):
            return run
        with contextlib.closing(run):
            drive([run], stop, folder.path, quiet=quiet)
            return run.finish()


def settled(cfg: RunConfig) -> RunConfig:
    """The settings with what this machine decides put in: device, threads, how updates run and multiply.

    Raises:
        ConfigError: this machine lacks something that was asked for.
    """
    require(cfg.run.sinks)
    device = pick_device(cfg.run.device)
    return cfg.with_run(
        device=device.type,
        threads=use_threads(cfg.run.threads),
        execution=pick_mode(cfg.run.execution, device),
        products=resolve_matmul_dtype(cfg.run.products, device),
    )


def origin_of(cfg: RunConfig) -> dict[str, Any]:
    """What provenance.json says of a run that begins here and now."""
    return provenance(device=cfg.run.device, seed=cfg.run.seed, threads=cfg.run.threads, plugins=plugin_files())


def command_line() -> str:
    """What was typed, for whoever finds the folder locked."""
    return " ".join(sys.argv)


def bear(
    cfg: RunConfig, staging: Staging, prepare: Prepare | None, *, beside: int = 1, pools: PrestartedPools | None = None
) -> AnyParts:
    """The parts of a run at its first step, which is saved: its folder can be published."""
    with contextlib.ExitStack() as failed:
        new = fresh(cfg, prepare, staging.folder, beside=beside, pools=pools)
        parts = failed.enter_context(contextlib.closing(new))
        save_state(staging.folder, parts, cfg, wall_seconds=0.0)
        failed.pop_all()
    return parts


def fresh(
    cfg: RunConfig,
    prepare: Prepare | None,
    folder: RunFolder | None = None,
    *,
    beside: int = 1,
    pools: PrestartedPools | None = None,
) -> AnyParts:
    """New parts at the first step; what `prepare` gives is added to the folder's provenance."""
    with contextlib.ExitStack() as failed:
        parts = failed.enter_context(
            contextlib.closing(build(cfg, plugin_files(), concurrent_runs=beside, pools=pools))
        )
        told = {} if prepare is None else prepare(parts)
        if told and folder is not None:
            write_provenance(folder, {**read_provenance(folder), **told})
        parts.collector.start()
        failed.pop_all()
    return parts


def take_up(
    folder: RunFolder, steps: int | None = None, *, beside: int = 1, pools: PrestartedPools | None = None
) -> LiveRun | Run:
    """The run as its newest whole checkpoint left it, or, where that is its last step, the finished run.

    The caller holds its lock.
    """
    cfg = stored_config(folder)
    saved = checkpoint.load(folder.checkpoints, on_skip=_warn)
    if saved.config_digest != cfg.digest():
        raise CheckpointError(
            f"{folder.config} does not describe the run that wrote {saved.path}: their digests differ. Put the "
            "original config.json back; `intrigue train --config` begins a new run with changed settings."
        )
    checkpoint.set_aside_damaged(folder.checkpoints)
    for place in (folder.checkpoints, folder.snapshots):
        checkpoint.clean_leftovers(place)
    if steps is not None:
        refuse_going_back(steps, saved.step, cfg)
        cfg = cfg.with_run(steps=steps)
        write_config(folder, cfg.to_json())
    if saved.step >= cfg.run.steps:
        return finished(folder, cfg, saved.step)
    clear_done(folder)
    use_threads(cfg.run.threads)
    with contextlib.ExitStack() as failed:
        parts = failed.enter_context(
            contextlib.closing(build(cfg, plugin_files(), concurrent_runs=beside, pools=pools))
        )
        parts.load_state_dict(saved.state)
        _note_differences(folder, cfg, saved.step, parts.collector.pool.restarted)
        failed.pop_all()
    return LiveRun(folder, parts, cfg, wall_seconds=float(saved.meta.get("wall_seconds", 0.0)))


def refuse_going_back(steps: int, reached: int, cfg: RunConfig) -> None:
    """Raise ConfigError if a run that reached this step cannot end at `steps`."""
    # All environments step together, so a run may end up to one step of each beyond what was asked.
    if steps <= reached - cfg.pool.num_envs:
        raise ConfigError(f"--steps {steps} lies behind the run, which is at step {reached}.")


def _note_differences(folder: RunFolder, cfg: RunConfig, step: int, restarted: int) -> None:
    """Say, and write into provenance.json, what keeps this run from equaling an uninterrupted one to the bit."""
    origin = read_provenance(folder)
    reasons = []
    if restarted:
        reasons.append(f"{restarted} environments of {cfg.env_id} cannot be saved, so their episodes begin anew")
    began_with, now = origin.get("versions", {}).get("torch"), importlib.metadata.version("torch")
    if began_with != now:
        reasons.append(f"the run began with torch {began_with} and goes on with {now}")
    if reasons:
        _warn(f"from step {step} on this run is not bit-identical to an uninterrupted one: {'; '.join(reasons)}")
        resumed = [*origin.get("resumed", []), {"step": step, "differs": reasons}]
        write_provenance(folder, {**origin, "resumed": resumed})


def use_threads(wanted: int) -> int:
    """Set torch's CPU threads (0 leaves them) and say how many there are; results depend on the number."""
    if wanted:
        torch.set_num_threads(wanted)
    return torch.get_num_threads()


def stored_config(folder: RunFolder) -> RunConfig:
    """The settings of a run on disk.

    Raises:
        CheckpointError: they cannot be used.
    """
    try:
        return resolve(flatten_json(read_config(folder)))
    except ConfigError as error:
        raise CheckpointError(
            f"{folder.config} cannot be used: {error}\nA run that used a plug-in needs it again: add --plugin FILE."
        ) from error


def _warn(text: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(f"warning: {printable(text)}\n")
