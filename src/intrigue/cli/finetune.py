"""`intrigue finetune DIR --task T [--snapshot N] [--steps N]`, and its results in words, which `resume` prints too."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from intrigue.cli.options import Json, Plugins, Quiet, RunDir, Whole, WholeOrNone, relative_path, run_command
from intrigue.config.plugins import add_plugin
from intrigue.errors import ConfigError, Problem

if TYPE_CHECKING:
    from intrigue.run.finetune import FinetuneResult
    from intrigue.run.folder import Run


def finished_finetuning(run: Run) -> FinetuneResult | None:
    """The result of a run that is a fine-tuning, at its last step and evaluated there; None for any other."""
    from intrigue.run.finetune import read_result
    from intrigue.run.folder import RunFolder, read_provenance

    if run.step < run.config.run.steps or run.evaluations().get("step", [])[-1:] != [run.step]:
        return None
    origin = read_provenance(RunFolder(run.path)).get("finetuned_from")
    return None if origin is None else read_result(run, int(origin["snapshot"]))


def describe_result(done: FinetuneResult) -> str:
    """The score of one run, as a sentence."""
    share = "" if done.expert is None else f", {done.normalized:.3f} of the expert's {done.expert:g}"
    return (
        f"{done.task} after {done.run.step} steps from snapshot {done.mark}: "
        f"return {done.score:.4g} ± {done.spread:.4g} over {done.episodes} episodes{share}"
    )


def describe_mean(all_done: Sequence[FinetuneResult]) -> str:
    """The mean score of several seeds, as a sentence."""
    mean, expert = statistics.fmean(done.score for done in all_done), all_done[0].expert
    share = "" if expert is None else f", {mean / expert:.3f} of the expert's {expert:g}"
    return f"mean of {len(all_done)} seeds: return {mean:.4g}{share}"


def finetune(
    folder: RunDir,
    task: Annotated[str, tyro.conf.arg(metavar="TASK", help="a task of the domain trained in: walker_run")],
    snapshot: Annotated[WholeOrNone, tyro.conf.arg(help="which, by its steps; default: the newest")] = None,
    steps: Annotated[Whole, tyro.conf.arg(help="agent steps of the task")] = 100_000,
    n_step: Annotated[Whole, tyro.conf.arg(help="steps of the n-step return")] = 3,
    eval_every: Annotated[
        Whole, tyro.conf.arg(help="agent steps between evaluations; after the last step there is always one")
    ] = 10_000,
    seed: Annotated[WholeOrNone, tyro.conf.arg(help="default: the pre-training's")] = None,
    device: Annotated[
        Literal["auto", "cpu", "cuda"], tyro.conf.arg(help="auto is the GPU where there is one")
    ] = "auto",
    out: Annotated[
        Path | None, tyro.conf.arg(metavar="DIR", help="the new run's folder; default: DIR__TASK__SNAPSHOT__SEED")
    ] = None,
    quiet: Quiet = False,
    json_output: Json = False,
    plugin: Plugins = (),
) -> int:
    """Fine-tune a pre-trained run on a task with its reward, and print the score.

    Of the snapshot the actor and the critic's first layer are copied, as in the Unsupervised RL Benchmark. The score
    is the mean of ten greedy episodes after the last step; eval.csv has one row for every --eval-every steps before.

    Where DIR holds the runs of several seeds (`intrigue train --seeds`), every seed is fine-tuned, into one folder,
    DIR__TASK__SNAPSHOT: together where they can be.

    Examples:
      intrigue finetune runs/walker --task walker_run
      intrigue finetune runs/walker --task walker_flip --snapshot 500000 --seed 3
    """
    numbers = {"--steps": steps, "--n-step": n_step, "--eval-every": eval_every, "--snapshot": snapshot}
    problems = [
        Problem(name, f"{number} is out of range; it must be >= 1.")
        for name, number in numbers.items()
        if number is not None and number < 1
    ]
    if problems:
        raise ConfigError(problems)
    for path in plugin:
        add_plugin(path)
    from intrigue.run import finetune as finetuning
    from intrigue.run.seed_folder import seed_runs

    results = finetuning.finetune(
        folder,
        task,
        mark=snapshot,
        steps=steps,
        n_step=n_step,
        eval_every=eval_every,
        seed=seed,
        device=device,
        out=out,
        quiet=quiet,
    )
    if seed_runs(folder):
        _print_all(results, json_output)
    elif json_output:
        sys.stdout.write(json.dumps(_fields(results[0])) + "\n")
    else:
        sys.stdout.write(f"{relative_path(results[0].run.path)}\n{describe_result(results[0])}\n")
    return 0


def _print_all(all_done: Sequence[FinetuneResult], json_output: bool) -> None:
    """One line for each seed and one for their mean, or all of it as one object."""
    first, mean = all_done[0], statistics.fmean(done.score for done in all_done)
    normalized = None if first.expert is None else mean / first.expert
    folder = first.run.path.parent
    if json_output:
        fields = {
            "folder": str(folder),
            "task": first.task,
            "snapshot": first.mark,
            "seeds": [{"seed": done.run.config.run.seed, **_fields(done)} for done in all_done],
            "return_mean": mean,
            "expert": first.expert,
            "normalized": normalized,
        }
        sys.stdout.write(json.dumps(fields) + "\n")
        return
    lines = [f"seed {done.run.config.run.seed}: {describe_result(done)}" for done in all_done]
    sys.stdout.write("\n".join([relative_path(folder), *lines, describe_mean(all_done), ""]))


def _fields(done: FinetuneResult) -> dict[str, Any]:
    return {
        "run": str(done.run.path),
        "task": done.task,
        "snapshot": done.mark,
        "step": done.run.step,
        "episodes": done.episodes,
        "return_mean": done.score,
        "return_std": done.spread,
        "expert": done.expert,
        "normalized": done.normalized,
    }


def main(argv: list[str]) -> int:
    """Entry point."""
    return run_command(finetune, "finetune", argv)
