"""Start and resume runs: one by itself, or several seeds of one setting in one process.

A run is whole at every instant. It appears with its first checkpoint; each later checkpoint is published before an
older one is removed; results are flushed before the checkpoint that counts them, and truncated to it on resume.

Each of several seeds is an ordinary run in a folder of its own (`intrigue.run.seed_folder`). Seeds that can train
together are saved at the same steps; the others are trained one after another. A crash between two saves, or a damaged
checkpoint, leaves some seeds behind: on resume these first catch up, then all continue together.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from intrigue.config.plugins import plugin_files
from intrigue.config.run import RunConfig
from intrigue.errors import ConfigError, name_seed_in_errors
from intrigue.run import create, seed_folder
from intrigue.run.build import (
    Prepare,
    build_and_checkpoint,
    build_new,
    provenance_now,
    read_run_config,
    reopen_run,
    resolve_machine_settings,
)
from intrigue.run.checkpoint.verify import list_checkpoints, step_and_generation
from intrigue.run.create import StagedRun
from intrigue.run.folder import Run, RunFolder, clear_done, open_run, write_config
from intrigue.run.lock import RunLock
from intrigue.run.logging.console import escape_control
from intrigue.run.loop import run_loop
from intrigue.run.names import default_run_name, default_seed_folder_name
from intrigue.run.seed_folder import StagedSeedFolder
from intrigue.run.session import RunSession
from intrigue.run.signals import StopRequest
from intrigue.training.loops import AnyParts, why_not_together
from intrigue.training.pool_prestart import PrestartedPools

DEFAULT_ROOT = Path("runs")
OpenRun: TypeAlias = Callable[[], RunSession | Run]
"""Opens a run that can continue from its current step, or returns one that is finished."""


@dataclass(frozen=True, slots=True)
class SeedRun:
    """One run to be started, and what is done to its parts before the first step."""

    cfg: RunConfig
    prepare: Prepare | None = None


def start(cfg: RunConfig, *, out: Path | None = None, quiet: bool = False, prepare: Prepare | None = None) -> Run:
    """Train a new run to its last step, in a folder of its own."""
    (run,) = _start([SeedRun(cfg, prepare)], out, quiet, in_seed_folder=False)
    return run


def start_seeds(seed_runs: Sequence[SeedRun], *, out: Path | None = None, quiet: bool = False) -> list[Run]:
    """Train new runs, which differ in their seeds alone, to their last step, in one folder of seeds."""
    return _start(seed_runs, out, quiet, in_seed_folder=True)


def resume(path: Path, *, steps: int | None = None, quiet: bool = False) -> Run:
    """Continue a run exactly where its newest whole checkpoint left it; `steps` is a new last step."""
    (run,) = _resume(path, [open_run(path)], steps, quiet)
    return run


def resume_seeds(path: Path, *, steps: int | None = None, quiet: bool = False) -> list[Run]:
    """Continue all runs of a folder of seeds, each where its newest whole checkpoint left it."""
    return _resume(path, [open_run(each) for each in seed_folder.seed_runs(path)], steps, quiet)


def _start(seed_runs: Sequence[SeedRun], out: Path | None, quiet: bool, *, in_seed_folder: bool) -> list[Run]:
    seed_runs = [SeedRun(resolve_machine_settings(each.cfg), each.prepare) for each in seed_runs]
    configs, count = [each.cfg for each in seed_runs], len(seed_runs)
    folders: list[RunFolder] = []
    built: list[AnyParts] = []
    reason = None
    with StopRequest() as stop, contextlib.ExitStack() as stack:
        parent = stack.enter_context(_stage_seed_folder(configs, out)) if in_seed_folder else None
        pools = stack.enter_context(PrestartedPools(plugin_files(), concurrent_runs=count))
        for each in seed_runs:
            staged = stack.enter_context(_stage_run(each.cfg, out, parent))
            with contextlib.ExitStack() as closed:
                new = build_and_checkpoint(each.cfg, staged, each.prepare, concurrent_runs=count, pools=pools)
                parts = closed.enter_context(contextlib.closing(new))
                if each is seed_runs[0] and count > 1:
                    reason = why_not_together(each.cfg, parts, count)
                    if reason is None:
                        pools.start(configs[1:])
                if reason is None:
                    stack.push(closed.pop_all())
                    built.append(parts)
            del new, parts  # frees the memory of a seed that is trained by itself for the next one
            stop.raise_if_set(f"stopped before the run{'s' * (count > 1)} began; nothing was written")
            folders.append(staged.publish())
        if parent is not None:
            folders = parent.publish()
        openers = [
            functools.partial(_open_new, each, folder, built[index] if reason is None else None)
            for index, (each, folder) in enumerate(zip(seed_runs, folders, strict=True))
        ]
        return _train_all(openers, lambda _: reason, stop, folders[0].path if parent is None else parent.path, quiet)


def _resume(path: Path, folders: Sequence[RunFolder], steps: int | None, quiet: bool) -> list[Run]:
    with StopRequest() as stop, contextlib.ExitStack() as stack:
        for place in dict.fromkeys([path, *(folder.path for folder in folders)]):
            stack.enter_context(RunLock(place, _command_line()))
        configs = [read_run_config(folder) for folder in folders]
        if steps is not None:
            configs = _set_last_step(folders, configs, steps)
        alike = all(cfg.with_run(seed=0) == configs[0].with_run(seed=0) for cfg in configs)
        unfinished = max(1, sum(not folder.finished.exists() for folder in folders))
        pools = stack.enter_context(PrestartedPools(plugin_files(), concurrent_runs=unfinished))

        def why_apart(run: RunSession) -> str | None:
            if not alike:
                return "their settings differ in more than seeds"
            reason = why_not_together(run.cfg, run.parts, unfinished)
            if reason is None:
                waiting = [cfg for folder, cfg in zip(folders, configs, strict=True) if _is_unfinished(folder, cfg)]
                pools.start([cfg for cfg in waiting if cfg != run.cfg])
            return reason

        openers = [functools.partial(reopen_run, folder, concurrent_runs=unfinished, pools=pools) for folder in folders]
        return _train_all(openers, why_apart, stop, path, quiet)


def _stage_seed_folder(configs: Sequence[RunConfig], out: Path | None) -> StagedSeedFolder:
    if out is not None:
        return seed_folder.create(out, _command_line())
    cfg, seeds = configs[0], [each.run.seed for each in configs]
    name = default_seed_folder_name(cfg.env_id, cfg.reward_name, cfg.agent_name, seeds)
    return seed_folder.create_numbered(DEFAULT_ROOT, name, _command_line())


def _stage_run(cfg: RunConfig, out: Path | None, parent: StagedSeedFolder | None) -> StagedRun:
    config, provenance = cfg.to_json(), provenance_now(cfg)
    if parent is not None:
        return parent.create(cfg.run.seed, config, provenance)
    if out is not None:
        return create.create(out, config, provenance, _command_line())
    name = default_run_name(cfg.env_id, cfg.reward_name, cfg.agent_name, cfg.run.seed)
    return create.create_numbered(DEFAULT_ROOT, name, config, provenance, _command_line())


def _command_line() -> str:
    """What was typed, for the error of a second process that finds the folder locked."""
    return " ".join(sys.argv)


def _open_new(seed_run: SeedRun, folder: RunFolder, parts: AnyParts | None) -> RunSession:
    """A run at its first step; its parts are built now unless they were kept."""
    return RunSession(folder, build_new(seed_run.cfg, seed_run.prepare) if parts is None else parts, seed_run.cfg)


def _is_unfinished(folder: RunFolder, cfg: RunConfig) -> bool:
    """Whether a run has certainly not reached its last step; by names alone, so the checkpoint may be damaged."""
    checkpoints = list_checkpoints(folder.checkpoints)
    return bool(checkpoints) and step_and_generation(checkpoints[-1])[0] < cfg.run.steps


def _set_last_step(folders: Sequence[RunFolder], configs: Sequence[RunConfig], steps: int) -> list[RunConfig]:
    """Write a new last step into the settings of all runs, or of none if one of them is beyond it already."""
    reached = [step_and_generation(list_checkpoints(folder.checkpoints)[-1])[0] for folder in folders]
    for cfg, step in zip(configs, reached, strict=True):
        # All environments step together, so a run may end up to one step of each beyond what was asked.
        if steps <= step - cfg.pool.num_envs:
            raise ConfigError(f"--steps {steps} lies behind the run, which is at step {step}.")
    for folder, cfg, step in zip(folders, configs, reached, strict=True):
        write_config(folder, cfg.with_run(steps=steps).to_json())
        if step < steps:
            clear_done(folder)
    return [cfg.with_run(steps=steps) for cfg in configs]


def _train_all(
    openers: Sequence[OpenRun],
    why_apart: Callable[[RunSession], str | None],
    stop: StopRequest,
    place: Path,
    quiet: bool,
) -> list[Run]:
    """Train all to their last step. `why_apart` is asked once, of the first that is not finished."""
    done: list[Run] = []
    live: list[RunSession] = []
    asked, reason = len(openers) == 1, None
    with contextlib.ExitStack() as stack:
        for number, opener in enumerate(openers, start=1):
            stop.raise_if_set(f"go on with `intrigue resume {place}`")
            run = opener()
            if isinstance(run, Run):
                done.append(run)
                continue
            if not asked:
                asked, reason = True, why_apart(run)
                if reason is not None:
                    _say(f"these {len(openers)} seeds are trained one after another: {reason}", quiet)
            if reason is None:
                live.append(stack.enter_context(contextlib.closing(run)))
                continue
            with contextlib.closing(run), name_seed_in_errors(run.cfg.run.seed):
                _say(f"seed {run.cfg.run.seed}, {number} of {len(openers)}", quiet)
                run_loop([run], stop, place, quiet=quiet)
                done.append(run.finish())
            del run
            gc.collect()  # the updates of a run are reference cycles; the next run needs their memory
        _train_together(live, stop, place, quiet, several=len(openers) > 1)
        done += [run.finish() for run in live]
    return sorted(done, key=lambda run: run.config.run.seed)


def _train_together(runs: Sequence[RunSession], stop: StopRequest, place: Path, quiet: bool, *, several: bool) -> None:
    """Train runs of equal settings to their last step; those that are behind first catch up with the next ones."""
    while waiting := [run for run in runs if run.step < run.cfg.run.steps]:
        lowest = min(run.step for run in waiting)
        behind = [run for run in waiting if run.step == lowest]
        until = min((run.step for run in waiting if run.step > lowest), default=None)
        if until is not None:
            seeds = ", ".join(str(run.cfg.run.seed) for run in behind)
            _say(f"seeds behind the others, at step {lowest}: {seeds}; they go on to step {until} first", quiet)
        alone = several and len(behind) == 1
        with name_seed_in_errors(behind[0].cfg.run.seed) if alone else contextlib.nullcontext():
            run_loop(behind, stop, place, quiet=quiet, until=until)
        gc.collect()  # of those that caught up, before all are stacked


def _say(text: str, quiet: bool) -> None:
    if not quiet:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{escape_control(text)}\n")
