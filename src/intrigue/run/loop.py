"""The loop around training: note, show, save, stop; the same for one run and for several that step together.

At which steps a run is looked at: log lines, checkpoints, evaluations, snapshots, its last step.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from intrigue.config.compatibility import aimless
from intrigue.config.run import RunConfig
from intrigue.errors import RunError, of_seed
from intrigue.ops.precision import set_matmul_dtype
from intrigue.run import checkpoint
from intrigue.run.logging.console import Console
from intrigue.run.session import LiveRun
from intrigue.run.signals import StopRequest
from intrigue.training.loops import train_all
from intrigue.types import Metrics


def next_mark(step: int, every: Iterable[int], marks: Iterable[int]) -> int:
    """The nearest step after `step` that is a multiple of one of `every` (0 is never) or one of `marks`."""
    multiples = [(step // each + 1) * each for each in every if each]
    return min([*multiples, *(mark for mark in marks if mark > step)])


def next_stop(cfg: RunConfig, step: int, log_every: int, last: int) -> int:
    """Where a run at `step` that writes a line every so many steps is looked at next, at the latest at `last`.

    Environments step together, so a run may reach it with up to one step of each beyond.
    """
    run = cfg.run
    return next_mark(step, (log_every, run.checkpoint_every, run.eval_every), (*run.snapshots, last))


def drive(runs: Sequence[LiveRun], stop: StopRequest, place: Path, *, quiet: bool, until: int | None = None) -> None:
    """Train runs that are at one step to their last, or to `until`; `place` is what `intrigue resume` takes up.

    They have equal settings but for their seeds, and are saved at the same steps, the last of all among them.

    Raises:
        Interrupted: a signal came; all are saved at the same step.
        RunError: one failed, and all stopped.
    """
    cfg, step, frames = runs[0].cfg, runs[0].step, runs[0].parts.collector.pool.frames_per_step
    last = cfg.run.steps if until is None else min(until, cfg.run.steps)
    every = cfg.run.checkpoint_every

    def stops(step: int) -> int:
        return step + 1 if stop else next_stop(cfg, step, runs[0].log_every, last)

    with (
        contextlib.closing(Console(cfg.run.steps, quiet=quiet, seeds=len(runs))) as console,
        contextlib.ExitStack() as stack,
    ):
        set_matmul_dtype(cfg.run.products)
        stack.callback(set_matmul_dtype, "float32")  # so that nothing else in this process takes what a run chose
        _introduce(runs, console)
        stack.enter_context(_explained(runs, place))
        for run in runs:
            stack.enter_context(run.training())
        for progresses in train_all([run.parts for run in runs], cfg.curiosity.warmup_steps, stops):
            before, step = step, progresses[0].step
            shown = []
            for run, progress in zip(runs, progresses, strict=True):
                with _named(run, runs):
                    shown.append(run.note(progress))
            console.update(step, step * frames, mean_of(shown))
            if step >= cfg.run.steps or stop or before // every != step // every:
                for run in runs:
                    with _named(run, runs):
                        run.save()
            _warn(runs, console)
            if step >= last:
                return
            stop.raise_if_set(f"saved at step {step}; go on with `intrigue resume {place}`")


def mean_of(rows: Sequence[Metrics]) -> Metrics:
    """The mean of each figure over the rows that have it as a number."""
    if len(rows) == 1:
        return rows[0]
    names = list(dict.fromkeys(name for row in rows for name in row))
    found = {name: [row[name] for row in rows if name in row and row[name] == row[name]] for name in names}
    return {name: sum(values) / len(values) for name, values in found.items() if values}


def _introduce(runs: Sequence[LiveRun], console: Console) -> None:
    need = runs[0].parts.footprint
    console.say(str(dataclasses.replace(need, bytes=need.bytes * len(runs))))
    cfg = runs[0].cfg
    if aimless(cfg.env_id, cfg.reward_name, cfg.curiosity):
        console.say(f"nothing to learn from: {cfg.env_id} has no reward of its own, and there is no bonus")
    for run in runs:
        for note in run.notes:
            console.say(note if len(runs) == 1 else f"seed {run.cfg.run.seed}: {note}")
    _warn(runs, console)


def _warn(runs: Sequence[LiveRun], console: Console) -> None:
    for run in runs:
        for warning in run.take_warnings():
            console.say(warning if len(runs) == 1 else f"seed {run.cfg.run.seed}: {warning}", warning=True)


def _named(run: LiveRun, runs: Sequence[LiveRun]) -> contextlib.AbstractContextManager[None]:
    return of_seed(run.cfg.run.seed) if len(runs) > 1 else contextlib.nullcontext()


@contextlib.contextmanager
def _explained(runs: Sequence[LiveRun], place: Path) -> Iterator[None]:
    """A scope whose failures say how far the runs came and what is left of them."""
    try:
        yield
    except RunError as error:
        if len(runs) == 1:
            kept = f"its {_kept(runs[0])} in {runs[0].folder.path}"
            raise type(error)(f"{error}\nThe run stopped at step {runs[0].step}; {kept}.") from error
        states: dict[str, list[str]] = {}
        for run in runs:
            states.setdefault(_kept(run), []).append(str(run.cfg.run.seed))
        kept = "; ".join(f"of seed {', '.join(seeds)} the {state}" for state, seeds in states.items())
        kept = f"of each the {next(iter(states))}" if len(states) == 1 else kept
        text = f"All {len(runs)} seeds stopped, last noted at step {runs[0].step}; {kept} in {place}."
        raise type(error)(f"{error}\n{text}") from error


def _kept(run: LiveRun) -> str:
    last = checkpoint.verify(run.folder.checkpoints)
    return f"checkpoint of step {last.step} is intact" if last.ok else "newest checkpoint is damaged"
