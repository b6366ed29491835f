"""The exact commands: to repeat a run, and to add the comparison a page lacks.

What a run began with is not in its config.json: a fine-tuning is repeated by `finetune`, and episodes are given again.
A folder that is not found stands as PATH/TO/NAME, under a comment that says what it is.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from intrigue.report.arms import ArmRuns, Task
from intrigue.report.origin import Origin
from intrigue.report.record import RunRecord

ELSEWHERE = Path("PATH/TO")


def repeat_commands(run: RunRecord) -> list[str]:
    """The lines that make the same run again in a folder of its own, or a comment that says why there are none."""
    assert run.path is not None
    if run.origin is None or run.origin.kind == "replay":
        return _make_train_commands(run, [], "again")
    if run.origin.kind == "unknown":
        return [f"# {run.path} cannot be repeated by its config.json alone: what it began with is not known."]
    return _make_finetune_commands(run, run.origin)


def plain_commands(task: Task, given: Sequence[Path]) -> list[str]:
    """The commands that add runs without a bonus, and the page with them; none where they are there already."""
    if any(arm.is_plain and arm.counted for arm in task.arms):
        return []
    models = [run for arm in task.arms if _learns_bonus(arm) for run in arm.counted if run.path is not None]
    if not models:
        return []
    seeds = {run.seed: run for run in reversed(models)}  # one run a seed is enough, whatever the number of arms
    chosen = [seeds[seed] for seed in sorted(seeds, key=lambda seed: seed or 0)]
    commands = [line for run in chosen for line in _make_train_commands(run, ["--reward", "none"], "none")]
    folders = [*given, *(_sibling_path(run, "none") for run in chosen)]
    return [*commands, shlex.join(["intrigue", "report", *map(str, folders)])]


def _learns_bonus(arm: ArmRuns) -> bool:
    """Whether curiosity has a part in its results: not in a fine-tuning, which names a reward but computes none."""
    mix = arm.config.curiosity
    return arm.is_curious and not mix.idle and (mix.int_coef != 0 or mix.int_coef_steps > 0)


def _make_train_commands(run: RunRecord, options: Sequence[str], suffix: str) -> list[str]:
    assert run.path is not None
    notes: list[str] = []
    begin: list[str] = []
    if run.origin is not None and run.origin.kind == "replay":
        folder, notes = _starting_folder(run.origin, "the episodes that its replay held from the start")
        begin = ["--replay-from", folder]
    words = ["train", "--config", str(run.path / "config.json"), *_plugin_options(run), *begin, *options]
    return [*notes, shlex.join(["intrigue", *words, "--out", str(_sibling_path(run, suffix))])]


def _make_finetune_commands(run: RunRecord, origin: Origin) -> list[str]:
    assert run.config is not None
    folder, notes = _starting_folder(origin, "the pre-training it began with")
    settings = run.config.run
    options = {
        "--task": run.config.env_id,
        "--snapshot": origin.step,
        "--steps": settings.steps,
        "--n-step": run.config.agent_options.get("n_step"),
        "--eval-every": settings.eval_every,
        "--seed": settings.seed,
        "--device": settings.device,
        "--out": _sibling_path(run, "again"),
    }
    words = [word for name, value in options.items() if value is not None for word in (name, str(value))]
    return [*notes, shlex.join(["intrigue", "finetune", folder, *_plugin_options(run), *words])]


def _starting_folder(origin: Origin, what: str) -> tuple[str, list[str]]:
    """The folder a run began with, and a comment on it where it is not found."""
    if origin.place is not None:
        return str(origin.place), []
    folder = str(ELSEWHERE / origin.folder.lstrip("/"))
    return folder, [f"# {folder} stands for {what}; it is not beside the run."]


def _plugin_options(run: RunRecord) -> list[str]:
    plugins = run.provenance.get("plugins")
    named = [str(path) for path in plugins] if isinstance(plugins, dict) else []
    return [word for path in named for word in ("--plugin", path)]


def _sibling_path(run: RunRecord, suffix: str) -> Path:
    assert run.path is not None
    whole = run.path if run.path.name not in ("", "..") else run.path.resolve()
    return whole.with_name(f"{whole.name}-{suffix}")
