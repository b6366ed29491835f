"""The exact commands: to repeat a run, and to add the comparison a page lacks."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from intrigue.report.arms import Task
from intrigue.report.record import RunRecord


def repeat_command(run: RunRecord) -> str:
    """The command that makes the same run again in a folder of its own."""
    assert run.path is not None
    return _train(run, [], "again")


def plain_commands(task: Task, given: Sequence[Path]) -> list[str]:
    """The commands that add runs without a bonus, and the page with them; none where they are there already."""
    if any(arm.is_plain and arm.counted for arm in task.arms):
        return []
    models = [run for arm in task.arms if arm.is_curious for run in arm.counted if run.path is not None]
    if not models:
        return []
    seeds = {run.seed: run for run in reversed(models)}  # one run a seed is enough, whatever the number of arms
    chosen = [seeds[seed] for seed in sorted(seeds, key=lambda seed: seed or 0)]
    commands = [_train(run, ["--reward", "none"], "none") for run in chosen]
    folders = [*given, *(_sibling(run, "none") for run in chosen)]
    return [*commands, shlex.join(["intrigue", "report", *map(str, folders)])]


def _train(run: RunRecord, options: Sequence[str], suffix: str) -> str:
    assert run.path is not None
    plugins = run.provenance.get("plugins")
    named = [str(path) for path in plugins] if isinstance(plugins, dict) else []
    loads = [word for path in named for word in ("--plugin", path)]
    config = str(run.path / "config.json")
    return shlex.join(["intrigue", "train", "--config", config, *loads, *options, "--out", str(_sibling(run, suffix))])


def _sibling(run: RunRecord, suffix: str) -> Path:
    assert run.path is not None
    whole = run.path if run.path.name not in ("", "..") else run.path.resolve()
    return whole.with_name(f"{whole.name}-{suffix}")
