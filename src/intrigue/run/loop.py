"""The loop around training: log, evaluate, checkpoint, stop; for one run, and for several that train together.

Training synchronises with it at `next_stop`: the next log line, checkpoint, evaluation, snapshot or the last step.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from intrigue.config.compatibility import has_no_reward_signal
from intrigue.config.run import RunConfig
from intrigue.errors import RunError, name_seed_in_errors
from intrigue.ops.precision import set_matmul_dtype
from intrigue.run import checkpoint
from intrigue.run.logging.console import Console
from intrigue.run.session import RunSession
from intrigue.run.signals import StopRequest
from intrigue.training.loops import train_all
from intrigue.types import Metrics


def next_mark(step: int, every: Iterable[int], marks: Iterable[int]) -> int:
    """The nearest step after `step` that is a multiple of one of `every` (0 is never) or one of `marks`."""
    multiples = [(step // each + 1) * each for each in every if each]
    return min([*multiples, *(mark for mark in marks if mark > step)])


def next_stop(cfg: RunConfig, step: int, log_every: int, last: int) -> int:
    """The next step after `step` at which training synchronises; at the latest `last`.

    Environments step together, so a run may pass it by up to one step of each.
    """
    run = cfg.run
    return next_mark(step, (log_every, run.checkpoint_every, run.eval_every), (*run.snapshots, last))


def run_loop(
    runs: Sequence[RunSession], stop: StopRequest, place: Path, *, quiet: bool, until: int | None = None
) -> None:
    """Train runs that are at the same step to their last, or to `until`; `place` is the path to resume from.

    Their settings differ in the seed alone. They are checkpointed at the same steps, the last one included.

    Raises:
        Interrupted: a signal arrived; all were saved at the same step.
        RunError: one failed, and all were stopped.
    """
    cfg, step, frames = runs[0].cfg, runs[0].step, runs[0].parts.collector.pool.frames_per_step
    last = cfg.run.steps if until is None else min(until, cfg.run.steps)

    def next_sync(step: int) -> int:
        return step + 1 if stop else next_stop(cfg, step, runs[0].log_every, last)

    with contextlib.ExitStack() as stack:
        console = stack.enter_context(contextlib.closing(Console(cfg.run.steps, quiet=quiet, seeds=len(runs))))
        set_matmul_dtype(cfg.run.products)
        stack.callback(set_matmul_dtype, "float32")  # the process-wide setting must not outlive the run
        _print_header(runs, console)
        stack.enter_context(_explain_failure(runs, place))
        for run in runs:
            stack.enter_context(run.timing())
        for progresses in train_all([run.parts for run in runs], cfg.curiosity.warmup_steps, next_sync):
            before, step = step, progresses[0].step
            shown = []
            for run, progress in zip(runs, progresses, strict=True):
                with _name_seed(run, runs):
                    shown.append(run.record(progress))
            console.update(step, step * frames, mean_metrics(shown))
            if step >= cfg.run.steps or stop or before // cfg.run.checkpoint_every != step // cfg.run.checkpoint_every:
                for run in runs:
                    with _name_seed(run, runs):
                        run.save()
            _print_warnings(runs, console)
            if step >= last:
                return
            stop.raise_if_set(f"saved at step {step}; go on with `intrigue resume {place}`")


def mean_metrics(rows: Sequence[Metrics]) -> Metrics:
    """The mean of each metric over the rows in which it is not NaN."""
    if len(rows) == 1:
        return rows[0]
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [row[name] for row in rows if name in row and row[name] == row[name]] for name in names}
    return {name: sum(values) / len(values) for name, values in columns.items() if values}


def _print_header(runs: Sequence[RunSession], console: Console) -> None:
    need = runs[0].parts.footprint
    console.say(str(dataclasses.replace(need, bytes=need.bytes * len(runs))))
    cfg = runs[0].cfg
    if has_no_reward_signal(cfg.env_id, cfg.reward_name, cfg.curiosity):
        console.say(f"nothing to learn from: {cfg.env_id} has no reward of its own, and there is no bonus")
    for run in runs:
        for note in run.notes:
            console.say(note if len(runs) == 1 else f"seed {run.cfg.run.seed}: {note}")
    _print_warnings(runs, console)


def _print_warnings(runs: Sequence[RunSession], console: Console) -> None:
    for run in runs:
        for warning in run.pop_warnings():
            console.say(warning if len(runs) == 1 else f"seed {run.cfg.run.seed}: {warning}", warning=True)


def _name_seed(run: RunSession, runs: Sequence[RunSession]) -> contextlib.AbstractContextManager[None]:
    return name_seed_in_errors(run.cfg.run.seed) if len(runs) > 1 else contextlib.nullcontext()


@contextlib.contextmanager
def _explain_failure(runs: Sequence[RunSession], place: Path) -> Iterator[None]:
    """A scope in which RunErrors also say at which step the runs stopped and which checkpoints are intact."""
    try:
        yield
    except RunError as error:
        if len(runs) == 1:
            kept = f"its {_checkpoint_status(runs[0])} in {runs[0].folder.path}"
            raise type(error)(f"{error}\nThe run stopped at step {runs[0].step}; {kept}.") from error
        states: dict[str, list[str]] = {}
        for run in runs:
            states.setdefault(_checkpoint_status(run), []).append(str(run.cfg.run.seed))
        kept = "; ".join(f"of seed {', '.join(seeds)} the {state}" for state, seeds in states.items())
        kept = f"of each the {next(iter(states))}" if len(states) == 1 else kept
        text = f"All {len(runs)} seeds stopped, last noted at step {runs[0].step}; {kept} in {place}."
        raise type(error)(f"{error}\n{text}") from error


def _checkpoint_status(run: RunSession) -> str:
    last = checkpoint.verify(run.folder.checkpoints)
    return f"checkpoint of step {last.step} is intact" if last.ok else "newest checkpoint is damaged"
