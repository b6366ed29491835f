"""The parts of a run: built new and checkpointed, or built and restored from the newest whole checkpoint.

`intrigue.run.driver` decides which runs are built when, and trains them.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch

from intrigue.config.plugins import plugin_files
from intrigue.config.run import RunConfig, flatten_json, resolve
from intrigue.errors import CheckpointError, ConfigError
from intrigue.ops.execution import pick_mode
from intrigue.ops.precision import resolve_matmul_dtype
from intrigue.run import checkpoint
from intrigue.run.create import StagedRun
from intrigue.run.folder import Run, RunFolder, clear_done, read_config, read_provenance, write_provenance
from intrigue.run.logging.console import escape_control
from intrigue.run.logging.loggers import require_installed
from intrigue.run.provenance import collect_provenance
from intrigue.run.session import RunSession, mark_finished, save_state
from intrigue.training.build import build, pick_device
from intrigue.training.loops import AnyParts
from intrigue.training.pool_prestart import PrestartedPools

Prepare: TypeAlias = Callable[[AnyParts], Mapping[str, Any]]
"""Changes the parts of a new run before its first step; what it returns is added to provenance.json."""


def resolve_machine_settings(cfg: RunConfig) -> RunConfig:
    """The settings with `auto` and 0 replaced by what this machine offers: device, threads, execution, products.

    Raises:
        ConfigError: this machine lacks something that was asked for.
    """
    require_installed(cfg.run.sinks)
    device = pick_device(cfg.run.device)
    return cfg.with_run(
        device=device.type,
        threads=use_threads(cfg.run.threads),
        execution=pick_mode(cfg.run.execution, device),
        products=resolve_matmul_dtype(cfg.run.products, device),
    )


def use_threads(wanted: int) -> int:
    """Set torch's CPU threads (0 leaves them) and return how many there are; results depend on the number."""
    if wanted:
        torch.set_num_threads(wanted)
    return torch.get_num_threads()


def provenance_now(cfg: RunConfig) -> dict[str, Any]:
    """The provenance.json of a run that begins here and now."""
    return collect_provenance(device=cfg.run.device, seed=cfg.run.seed, threads=cfg.run.threads, plugins=plugin_files())


def build_new(
    cfg: RunConfig,
    prepare: Prepare | None,
    folder: RunFolder | None = None,
    *,
    concurrent_runs: int = 1,
    pools: PrestartedPools | None = None,
) -> AnyParts:
    """New parts at the first step; what `prepare` returns is added to the folder's provenance."""
    with contextlib.ExitStack() as failed:
        parts = failed.enter_context(
            contextlib.closing(build(cfg, plugin_files(), concurrent_runs=concurrent_runs, pools=pools))
        )
        origin = {} if prepare is None else prepare(parts)
        if origin and folder is not None:
            write_provenance(folder, {**read_provenance(folder), **origin})
        parts.collector.start()
        failed.pop_all()
    return parts


def build_and_checkpoint(
    cfg: RunConfig,
    staged: StagedRun,
    prepare: Prepare | None,
    *,
    concurrent_runs: int = 1,
    pools: PrestartedPools | None = None,
) -> AnyParts:
    """New parts, and their first checkpoint in the staged folder, which can then be published."""
    with contextlib.ExitStack() as failed:
        new = build_new(cfg, prepare, staged.folder, concurrent_runs=concurrent_runs, pools=pools)
        parts = failed.enter_context(contextlib.closing(new))
        save_state(staged.folder, parts, cfg, wall_seconds=0.0)
        failed.pop_all()
    return parts


def reopen_run(
    folder: RunFolder, *, concurrent_runs: int = 1, pools: PrestartedPools | None = None
) -> RunSession | Run:
    """The run restored from its newest whole checkpoint; the finished run where that is its last step.

    The caller holds its lock.
    """
    cfg = read_run_config(folder)
    saved = checkpoint.load(folder.checkpoints, on_skip=_warn)
    if saved.config_digest != cfg.digest():
        raise CheckpointError(
            f"{folder.config} does not describe the run that wrote {saved.path}: their digests differ. Put the "
            "original config.json back; `intrigue train --config` begins a new run with changed settings."
        )
    checkpoint.quarantine_damaged(folder.checkpoints)
    for place in (folder.checkpoints, folder.snapshots):
        checkpoint.clean_leftovers(place)
    if saved.step >= cfg.run.steps:
        return mark_finished(folder, cfg, saved.step)
    clear_done(folder)
    use_threads(cfg.run.threads)
    with contextlib.ExitStack() as failed:
        parts = failed.enter_context(
            contextlib.closing(build(cfg, plugin_files(), concurrent_runs=concurrent_runs, pools=pools))
        )
        parts.load_state_dict(saved.state)
        _report_differences(folder, cfg, saved.step, parts.collector.pool.restarted)
        failed.pop_all()
    return RunSession(folder, parts, cfg, wall_seconds=float(saved.meta.get("wall_seconds", 0.0)))


def read_run_config(folder: RunFolder) -> RunConfig:
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


def _report_differences(folder: RunFolder, cfg: RunConfig, step: int, restarted: int) -> None:
    """Warn of what keeps this run from equaling an uninterrupted one to the bit, and add it to provenance.json."""
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


def _warn(text: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(f"warning: {escape_control(text)}\n")
