"""`write_report`: runs on disk become one HTML page that opens offline, and its figures as PNG and SVG beside it.

The page holds everything it shows: pictures are inside, there is no script, and its policy forbids every request.
Whatever comes from a run is escaped by the template. The same runs give the same bytes: no dates, fixed seeds.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intrigue import __version__
from intrigue.errors import CheckpointError, ConfigError, Problem
from intrigue.report.arms import Task, sort_tasks
from intrigue.report.charts import Picture, use_style
from intrigue.report.commands import repeat_commands
from intrigue.report.random_baseline import with_random_policy
from intrigue.report.record import RunRecord, read_record
from intrigue.report.sections import Section, make_section, slug
from intrigue.report.tables import run_table
from intrigue.report.text import escape_unprintable, plural
from intrigue.run import atomic, disk
from intrigue.run.checkpoint.verify import list_folder
from intrigue.run.folder import RunFolder
from intrigue.run.seed_folder import seed_runs

DEFAULT_PAGE = Path("report.html")
TEMPLATE = "page.html.j2"


@dataclass(frozen=True)
class Report:
    """A page ready to be written."""

    path: Path
    headlines: list[str]
    html: str
    pictures: list[Picture]


def write_report(
    folders: Sequence[Path], out: Path | None = None, *, title: str | None = None, headline: str | None = None
) -> Path:
    """The path of the page written. A folder that holds runs stands for all of them.

    Raises:
        ConfigError: a folder is no run, `out` is no place for a page, or the `report` extra is not installed.
        CheckpointError: not one of the runs can be read.
        StorageError: the disk refused; a page that was there before is untouched.
    """
    return save_report(compose_report(folders, out, title=title, headline=headline))


def compose_report(
    folders: Sequence[Path], out: Path | None = None, *, title: str | None = None, headline: str | None = None
) -> Report:
    """The page and its pictures, nothing written yet; `headline` replaces the sentence made from the runs."""
    paths = find_runs(folders)
    page = _page_path(paths, out)
    template = _template()
    with use_style():
        tasks, unreadable = read_tasks(paths)
        many = len(tasks) > 1
        prefixes = [f"{i}-{slug(task.env_id)}-" if many else "" for i, task in enumerate(tasks, start=1)]
        sections = [make_section(task, paths, prefix) for task, prefix in zip(tasks, prefixes, strict=True)]
    headlines = _headlines(sections, headline)
    html = template.render(
        title=escape_unprintable(title or f"intrigue: {', '.join(dict.fromkeys(task.env_id for task in tasks))}"),
        headlines=headlines,
        sections=sections,
        runs=run_table(tasks, unreadable),
        unreadable=plural(len(unreadable), "run") if unreadable else "",
        amount=plural(len(paths), "run"),
        origins=_origins(tasks),
        version=__version__,
    )
    return Report(page, headlines, html, [picture for section in sections for picture in section.pictures])


def save_report(report: Report) -> Path:
    """The path of the page, written: the figures first, then the page that speaks of them."""
    figures = report.path.parent / "figures"
    with disk.storage_errors(figures):
        os.makedirs(figures, exist_ok=True)
    for picture in report.pictures:
        atomic.write_file(figures / f"{picture.name}.svg", picture.svg)
        atomic.write_file(figures / f"{picture.name}.png", picture.png)
    atomic.write_file(report.path, report.html.encode("utf-8"))
    return report.path


def read_tasks(paths: Sequence[Path]) -> tuple[list[Task], list[RunRecord]]:
    """The tasks of these runs, each maze with a random policy beside it, and the runs whose settings are unreadable.

    Raises:
        CheckpointError: no run has results that can be shown.
    """
    records = [read_record(path) for path in paths]
    if all(record.state == "damaged" for record in records):
        reasons = "\n".join(f"  - {record.path}: {record.reason}" for record in records)
        raise CheckpointError(f"none of these runs can be read; no page was written:\n{reasons}")
    tasks = [with_random_policy(task) for task in sort_tasks(records)]
    return tasks, [record for record in records if record.config is None]


def find_runs(folders: Sequence[Path]) -> list[Path]:
    """The run folders meant, each once, in the order given; a folder of seeds stands for its runs, wherever it lies.

    Raises:
        ConfigError: with every folder that holds no run.
    """
    problems: list[Problem] = []
    found: dict[str, Path] = {}
    for folder in folders:
        inside = [folder] if _is_run(folder) else [run for path in _children(folder) for run in _runs_at(path)]
        if not inside:
            wrong = "holds no run" if folder.is_dir() else "is not a folder" if folder.exists() else "does not exist"
            problems.append(Problem("", f"{folder} {wrong}. Give the folder of a run, or one that holds such folders."))
        for path in inside:
            found.setdefault(os.path.realpath(path), path)
    if not folders:
        problems.append(Problem("", "no run was given. Give one or more folders of runs."))
    if problems:
        raise ConfigError(problems)
    return list(found.values())


def _runs_at(path: Path) -> list[Path]:
    """The run at `path`, or all runs in it if it is a folder of seeds; none where it is hidden or something else."""
    if _is_run(path):
        return [path]
    if path.name.startswith(".") or not seed_runs(path):
        return []
    return [run for run in _children(path) if _is_run(run)]


def _is_run(path: Path) -> bool:
    run = RunFolder(path)
    return path.is_dir() and not path.name.startswith(".") and (run.config.is_file() or run.checkpoints.is_dir())


def _children(folder: Path) -> list[Path]:
    return list_folder(folder) if folder.is_dir() else []


def _page_path(paths: Sequence[Path], out: Path | None) -> Path:
    if out is None:
        return RunFolder(paths[0]).report if len(paths) == 1 else DEFAULT_PAGE
    if out.suffix.lower() not in (".html", ".htm") or out.is_dir():
        raise ConfigError([Problem("--out", f"{out} is no page. Give the name of a file that ends in .html.")])
    return out


def _template() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise ConfigError("jinja2 is not installed; add it with `pip install 'intrigue[report]'`.") from error
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["embedded"] = _embedded
    return environment.get_template(TEMPLATE)


def _embedded(picture: Picture) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(picture.svg).decode("ascii")


def _headlines(sections: Sequence[Section], given: str | None) -> list[str]:
    if given is not None:
        return [escape_unprintable(given)]
    return [f"{each.env_id}: {each.headline}" if len(sections) > 1 else each.headline for each in sections]


def _origins(tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """How each arm on disk was made: all settings, where each run ran, and the command that repeats it."""
    origins = []
    for task in tasks:
        for arm in task.arms:
            runs = [run for run in arm.runs if run.path is not None]
            if not runs:
                continue
            origins.append(
                {
                    "label": escape_unprintable(f"{task.env_id}: {arm.label}" if len(tasks) > 1 else arm.label),
                    "settings": _listed(arm.config.to_json()),
                    "provenance": [(escape_unprintable(str(run.path)), _listed(run.provenance)) for run in runs],
                    "commands": [escape_unprintable(line) for run in runs for line in repeat_commands(run)],
                }
            )
    return origins


def _listed(tree: dict[str, Any]) -> str:
    lines = json.dumps(tree, indent=2, sort_keys=True).split("\n")
    return "\n".join(escape_unprintable(line) for line in lines)
