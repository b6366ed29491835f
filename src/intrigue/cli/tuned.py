"""What a fine-tuning found, in words: for `finetune`, and for `resume` where it ends one that was interrupted."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from intrigue.run.finetune import Finetuned
    from intrigue.run.result import Run


def ended(run: Run) -> Finetuned | None:
    """The fine-tuning that this run is, where it has its score: at its last step, and evaluated there."""
    from intrigue.run.finetune import scored
    from intrigue.run.folder import RunFolder, read_provenance

    if run.step < run.config.run.steps or run.evaluations().get("step", [])[-1:] != [run.step]:
        return None
    origin = read_provenance(RunFolder(run.path)).get("finetuned_from")
    return None if origin is None else scored(run, int(origin["snapshot"]))


def sentence(done: Finetuned) -> str:
    """The score of one run."""
    share = "" if done.expert is None else f", {done.normalized:.3f} of the expert's {done.expert:g}"
    return (
        f"{done.task} after {done.run.step} steps from snapshot {done.mark}: "
        f"return {done.score:.4g} ± {done.spread:.4g} over {done.episodes} episodes{share}"
    )


def mean_sentence(all_done: Sequence[Finetuned]) -> str:
    """The mean score of several seeds."""
    mean, expert = statistics.fmean(done.score for done in all_done), all_done[0].expert
    share = "" if expert is None else f", {mean / expert:.3f} of the expert's {expert:g}"
    return f"mean of {len(all_done)} seeds: return {mean:.4g}{share}"
