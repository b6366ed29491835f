"""At which steps a run is looked at: log lines, checkpoints, evaluations, snapshots, its last step."""

from __future__ import annotations

from collections.abc import Iterable

from intrigue.config.run import RunConfig


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
