"""Several seeds of one setting in one process: together where they can step together, else one after another.

Each seed is an ordinary run in a folder of its own (`intrigue.run.seed_folder`). Those that step together are saved at
the same steps. A crash between two saves, or a damaged checkpoint, leaves some behind: taken up again, these first go
on alone to where the next ones stand, and then all go on together.
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
from intrigue.errors import of_seed
from intrigue.run import seed_folder
from intrigue.run.checkpoint.verify import order, published
from intrigue.run.driver import (
    DEFAULT_ROOT,
    Prepare,
    bear,
    command_line,
    fresh,
    origin_of,
    refuse_going_back,
    settled,
    stored_config,
    take_up,
)
from intrigue.run.folder import Run, RunFolder, clear_done, open_run, write_config
from intrigue.run.lock import RunLock
from intrigue.run.logging.console import printable
from intrigue.run.loop import drive
from intrigue.run.names import seeds_stem
from intrigue.run.session import LiveRun
from intrigue.run.signals import StopRequest
from intrigue.training.loops import AnyParts, why_not_together
from intrigue.training.pool_prestart import PrestartedPools

Opener: TypeAlias = Callable[[], LiveRun | Run]
"""Gives a run that can go on from where it stands, or one that is finished."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One seed's run to be, and what is done to its parts before the first step."""

    cfg: RunConfig
    prepare: Prepare | None = None


def start_seeds(plans: Sequence[Plan], *, out: Path | None = None, quiet: bool = False) -> list[Run]:
    """Train new runs, which differ in their seeds alone, to their last step, in one folder."""
    plans = [Plan(settled(plan.cfg), plan.prepare) for plan in plans]
    cfg, seeds = plans[0].cfg, [plan.cfg.run.seed for plan in plans]
    with StopRequest() as stop, contextlib.ExitStack() as stack:
        if out is None:
            stem = seeds_stem(cfg.env_id, cfg.reward_name, cfg.agent_name, seeds)
            nest = seed_folder.create_numbered(DEFAULT_ROOT, stem, command_line())
        else:
            nest = seed_folder.create(out, command_line())
        stack.enter_context(nest)
        pools = stack.enter_context(PrestartedPools(plugin_files(), concurrent_runs=len(plans)))
        born: list[AnyParts] = []
        reason = None
        for plan in plans:
            stop.raise_if_set("stopped before the runs began; nothing was written")
            staging = nest.create(plan.cfg.run.seed, plan.cfg.to_json(), origin_of(plan.cfg))
            with contextlib.ExitStack() as closed:
                new = bear(plan.cfg, staging, plan.prepare, beside=len(plans), pools=pools)
                parts = closed.enter_context(contextlib.closing(new))
                if plan is plans[0]:
                    reason = why_not_together(cfg, parts, len(plans))
                    if reason is None:
                        pools.start([each.cfg for each in plans[1:]])
                if reason is None:
                    stack.push(closed.pop_all())
                    born.append(parts)
            del new, parts  # the memory of seeds that are trained one after another is the next one's
            staging.publish()
        stop.raise_if_set("stopped before the runs began; nothing was written")
        folders = nest.publish()
        if reason is None:
            openers = [_opener(plan, folder, parts) for plan, folder, parts in zip(plans, folders, born, strict=True)]
        else:
            openers = [_opener(plan, folder) for plan, folder in zip(plans, folders, strict=True)]
        return _conduct(openers, lambda _: reason, stop, nest.path, quiet)


def resume_seeds(path: Path, *, steps: int | None = None, quiet: bool = False) -> list[Run]:
    """Take up all runs of a folder of several seeds, each where its newest whole checkpoint left it."""
    folders = [open_run(each) for each in seed_folder.seed_runs(path)]
    with StopRequest() as stop, contextlib.ExitStack() as stack:
        for place in (path, *(folder.path for folder in folders)):
            stack.enter_context(RunLock(place, command_line()))
        configs = [stored_config(folder) for folder in folders]
        if steps is not None:
            configs = _extend(folders, configs, steps)
        alike = all(cfg.with_run(seed=0) == configs[0].with_run(seed=0) for cfg in configs)
        waiting = sum(not folder.finished.exists() for folder in folders)

        pools = stack.enter_context(PrestartedPools(plugin_files(), concurrent_runs=waiting))

        def apart(run: LiveRun) -> str | None:
            if not alike:
                return "their settings differ in more than seeds"
            reason = why_not_together(run.cfg, run.parts, waiting)
            if reason is None:
                going_on = [cfg for folder, cfg in zip(folders, configs, strict=True) if _goes_on(folder, cfg)]
                pools.start([cfg for cfg in going_on if cfg != run.cfg])
            return reason

        openers = [functools.partial(take_up, folder, beside=waiting, pools=pools) for folder in folders]
        return _conduct(openers, apart, stop, path, quiet)


def _goes_on(folder: RunFolder, cfg: RunConfig) -> bool:
    """Whether a run has surely not reached its last step; nothing is read, and its newest checkpoint may be damaged."""
    checkpoints = published(folder.checkpoints)
    return bool(checkpoints) and order(checkpoints[-1])[0] < cfg.run.steps


def _extend(folders: Sequence[RunFolder], configs: Sequence[RunConfig], steps: int) -> list[RunConfig]:
    """Give every run a new last step, or none."""
    reached = [order(published(folder.checkpoints)[-1])[0] for folder in folders]
    for cfg, step in zip(configs, reached, strict=True):
        refuse_going_back(steps, step, cfg)
    for folder, cfg, step in zip(folders, configs, reached, strict=True):
        write_config(folder, cfg.with_run(steps=steps).to_json())
        if step < steps:
            clear_done(folder)
    return [cfg.with_run(steps=steps) for cfg in configs]


def _opener(plan: Plan, folder: RunFolder, parts: AnyParts | None = None) -> Opener:
    """A run at its first step, with parts that are there already or are made when it is their turn."""
    return lambda: LiveRun(folder, fresh(plan.cfg, plan.prepare) if parts is None else parts, plan.cfg)


def _conduct(
    openers: Sequence[Opener], apart: Callable[[LiveRun], str | None], stop: StopRequest, place: Path, quiet: bool
) -> list[Run]:
    """Train all to their last step. `apart` says of the first that is not finished why they cannot step together."""
    done: list[Run] = []
    live: list[LiveRun] = []
    asked, reason = False, None
    with contextlib.ExitStack() as stack:
        for number, opener in enumerate(openers, start=1):
            stop.raise_if_set(f"go on with `intrigue resume {place}`")
            run = opener()
            if isinstance(run, Run):
                done.append(run)
                continue
            if not asked:
                asked, reason = True, apart(run)
                if reason is not None and len(openers) > 1:
                    _say(f"these {len(openers)} seeds are trained one after another: {reason}", quiet)
            if reason is None:
                live.append(stack.enter_context(contextlib.closing(run)))
                continue
            with contextlib.closing(run), of_seed(run.cfg.run.seed):
                _say(f"seed {run.cfg.run.seed}, {number} of {len(openers)}", quiet)
                drive([run], stop, place, quiet=quiet)
                done.append(run.finish())
            del run
            gc.collect()  # its memory is the next one's, and its updates refer to themselves
        _together(live, stop, place, quiet)
        done += [run.finish() for run in live]
    return sorted(done, key=lambda run: run.config.run.seed)


def _together(runs: Sequence[LiveRun], stop: StopRequest, place: Path, quiet: bool) -> None:
    """Train runs of equal settings to their last step; those that are behind first catch up with the next ones."""
    while waiting := [run for run in runs if run.step < run.cfg.run.steps]:
        lowest = min(run.step for run in waiting)
        behind = [run for run in waiting if run.step == lowest]
        until = min((run.step for run in waiting if run.step > lowest), default=None)
        if until is not None:
            seeds = ", ".join(str(run.cfg.run.seed) for run in behind)
            _say(f"seeds behind the others, at step {lowest}: {seeds}; they go on to step {until} first", quiet)
        with of_seed(behind[0].cfg.run.seed) if len(behind) == 1 else contextlib.nullcontext():
            drive(behind, stop, place, quiet=quiet, until=until)
        gc.collect()  # what they learned in by themselves, before all are stacked


def _say(text: str, quiet: bool) -> None:
    if not quiet:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{printable(text)}\n")
