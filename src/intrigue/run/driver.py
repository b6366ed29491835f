"""From a configuration to a run on disk: start or take up, log, save, stop. Nothing below it knows a path.

A run is whole at every instant: it appears with its first checkpoint, each later one is published before an older one
goes, results are flushed before the checkpoint that counts them, and are cut back to it when a run is taken up again.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from intrigue.config import RunConfig, flatten_json, resolve
from intrigue.errors import CheckpointError, ConfigError, RunError
from intrigue.execution import pick_mode
from intrigue.plugins import plugin_files
from intrigue.run import birth, checkpoint, snapshot
from intrigue.run.console import Console, printable
from intrigue.run.folder import (
    RunFolder,
    clear_done,
    mark_done,
    open_run,
    read_config,
    read_provenance,
    write_config,
    write_provenance,
)
from intrigue.run.journal import Journal
from intrigue.run.lock import RunLock
from intrigue.run.names import run_stem
from intrigue.run.provenance import provenance
from intrigue.run.result import Run
from intrigue.run.signals import StopRequest
from intrigue.training.build import build, pick_device
from intrigue.training.evaluation import Evaluator
from intrigue.training.loops import AnyParts, loop
from intrigue.training.weights import snapshot_state

DEFAULT_ROOT = Path("runs")


def start(
    cfg: RunConfig,
    *,
    out: Path | None = None,
    quiet: bool = False,
    prepare: Callable[[AnyParts], Mapping[str, Any]] | None = None,
) -> Run:
    """Train a new run to its last step.

    `prepare` may change the parts before anything happens; what it gives goes into provenance.json.
    """
    device = pick_device(cfg.run.device)
    mode = pick_mode(cfg.run.execution, device)
    cfg = cfg.with_run(device=device.type, threads=use_threads(cfg.run.threads), execution=mode)
    with StopRequest() as stop, contextlib.ExitStack() as stack:
        origin = provenance(device=cfg.run.device, seed=cfg.run.seed, threads=cfg.run.threads, plugins=plugin_files())
        command = " ".join(sys.argv)
        if out is None:
            stem = run_stem(cfg.env_id, cfg.reward_name, cfg.agent_name, cfg.run.seed)
            staging = birth.create_numbered(DEFAULT_ROOT, stem, cfg.to_json(), origin, command)
        else:
            staging = birth.create(out, cfg.to_json(), origin, command)
        stack.enter_context(staging)
        parts = stack.enter_context(contextlib.closing(build(cfg, plugin_files())))
        if prepare is not None:
            write_provenance(staging.folder, {**origin, **prepare(parts)})
        parts.collector.start()
        stop.raise_if_set("stopped before the run began; nothing was written")
        _save(staging.folder, parts, cfg, wall_seconds=0.0)
        folder = staging.publish()
        return _drive(folder, parts, cfg, stop, quiet, wall_seconds=0.0)


def resume(path: Path, *, steps: int | None = None, quiet: bool = False) -> Run:
    """Take a run up exactly where its newest whole checkpoint left it."""
    folder = open_run(path)
    with StopRequest() as stop, RunLock(folder.path, " ".join(sys.argv)), contextlib.ExitStack() as stack:
        cfg = _stored_config(folder)
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
            # All environments step together, so a run may end up to one step of each beyond what was asked.
            if steps <= saved.step - cfg.pool.num_envs:
                raise ConfigError(f"--steps {steps} lies behind the run, which is at step {saved.step}.")
            cfg = cfg.with_run(steps=steps)
            write_config(folder, cfg.to_json())
        if saved.step >= cfg.run.steps:
            return _finish(folder, cfg, saved.step)
        clear_done(folder)
        use_threads(cfg.run.threads)
        parts = stack.enter_context(contextlib.closing(build(cfg, plugin_files())))
        parts.load_state_dict(saved.state)
        _note_differences(folder, cfg, saved.step, parts.collector.pool.restarted)
        return _drive(folder, parts, cfg, stop, quiet, wall_seconds=float(saved.meta.get("wall_seconds", 0.0)))


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


def _drive(
    folder: RunFolder, parts: AnyParts, cfg: RunConfig, stop: StopRequest, quiet: bool, wall_seconds: float
) -> Run:
    began = time.monotonic() - wall_seconds
    pool = parts.collector.pool
    every = cfg.run.checkpoint_every
    step = parts.collector.step_count
    with (
        contextlib.closing(Console(cfg.run.steps, quiet=quiet)) as console,
        contextlib.closing(Journal(folder, step, pool.frames_per_step)) as journal,
        contextlib.closing(Evaluator(cfg, parts)) as evaluator,
    ):
        console.say(str(parts.footprint))
        for note in journal.notes:
            console.say(note)
        try:
            for progress in loop(parts, cfg.curiosity.warmup_steps):
                before, step = step, progress.step
                seconds = time.monotonic() - began
                shown = journal.note(progress, parts.collector.coverage(), seconds)
                console.update(step, step * pool.frames_per_step, shown)
                for mark in snapshot.due(cfg.run.snapshots, before, step):
                    snapshot.save(folder, mark, snapshot_state(cfg, parts), cfg.digest(), step)
                if evaluator.due(before, step):
                    journal.note_evaluation(step, evaluator(step), seconds)
                ending = step >= cfg.run.steps or bool(stop)
                if ending or before // every != step // every:
                    journal.sync()
                    _save(folder, parts, cfg, wall_seconds=seconds)
                if step >= cfg.run.steps:
                    break
                stop.raise_if_set(f"saved at step {step}; go on with `intrigue resume {folder.path}`")
        except RunError as error:
            last = checkpoint.verify(folder.checkpoints)
            kept = (
                f"its checkpoint of step {last.step} is intact in" if last.ok else "its newest checkpoint is damaged in"
            )
            raise type(error)(f"{error}\nThe run stopped at step {step}; {kept} {folder.path}.") from error
    return _finish(folder, cfg, step)


def _finish(folder: RunFolder, cfg: RunConfig, step: int) -> Run:
    mark_done(folder, step, checkpoint.digest(folder.checkpoints))
    return Run(folder.path, cfg, step)


def _save(folder: RunFolder, parts: AnyParts, cfg: RunConfig, wall_seconds: float) -> None:
    checkpoint.save(
        folder.checkpoints,
        parts.collector.step_count,
        parts.state_dict(),
        config_digest=cfg.digest(),
        meta={"wall_seconds": wall_seconds},
        keep=cfg.run.keep,
    )


def _stored_config(folder: RunFolder) -> RunConfig:
    try:
        return resolve(flatten_json(read_config(folder)))
    except ConfigError as error:
        raise CheckpointError(
            f"{folder.config} cannot be used: {error}\nA run that used a plug-in needs it again: add --plugin FILE."
        ) from error


def _warn(text: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(f"warning: {printable(text)}\n")
