"""`intrigue reproduce STUDY [--budget B] [--out DIR] [--from FILE] [--recheck-paper]`."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from intrigue.cli.options import Json, Switch, Whole, run_command
from intrigue.errors import ConfigError, Problem
from intrigue.run.outputs import check_folder

if TYPE_CHECKING:
    from intrigue.studies.base import Conclusion, Study


def reproduce(
    study: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="STUDY", help="see `intrigue list studies`")],
    budget: Annotated[Literal["smoke", "hour", "full"], tyro.conf.arg(help="how much to spend")] = "smoke",
    out: Annotated[
        Path | None,
        tyro.conf.arg(metavar="DIR", help="where its runs and tables go; default runs/studies/STUDY-BUDGET"),
    ] = None,
    jobs: Annotated[Whole, tyro.conf.arg(help="runs at a time; 0: as many as the study says")] = 0,
    sources: Annotated[
        tyro.conf.UseAppendAction[tuple[Path, ...]],
        tyro.conf.arg(
            name="from",
            metavar="PATH",
            help="train nothing: make the table from a CSV file of results, or from a folder of runs; repeatable",
        ),
    ] = (),
    recheck_paper: Annotated[
        Switch, tyro.conf.arg(help="train nothing: compute the paper's own numbers again from what it prints")
    ] = False,
    json_output: Json = False,
) -> int:
    """Run a study and print the paper's value next to ours, with seeds, interval and verdict.

    Finished runs are not repeated: the same command goes on where it was stopped.

    Examples:
      intrigue reproduce fig1
      intrigue reproduce quickstart --out runs/maze
      intrigue reproduce table2 --recheck-paper
      intrigue reproduce table2 --from results/atari-h200.csv
    """
    from intrigue.studies.registry import STUDIES
    from intrigue.studies.show import show

    plan = STUDIES.get(study).cls()
    place = out or Path("runs") / "studies" / f"{study}-{'from' if sources else budget}"
    problems = check_folder("--out", out if recheck_paper else place)
    if jobs < 0:
        problems.append(Problem("--jobs", f"{jobs} is out of range; it must be >= 0."))
    if recheck_paper and sources:
        problems.append(
            Problem("--from", "cannot be combined with --recheck-paper, which reads the paper alone. Drop one.")
        )
    if problems:
        raise ConfigError(problems)
    if recheck_paper:
        what, conclusion = "the paper's own numbers", _recheck(study, plan, out)
    elif sources:
        what, conclusion = "from files", _conclude_files(study, plan, sources, place)
    else:
        what, conclusion = f"budget: {budget}", _train(plan, budget, place, jobs)
    if json_output:
        _print_json(study, None if recheck_paper or sources else budget, conclusion)
    else:
        show(plan.title, what, conclusion)
    return 0


def _print_json(study: str, budget: str | None, conclusion: Conclusion) -> None:
    fields = {
        "study": study,
        "budget": budget,
        "headline": conclusion.headline,
        "rows": [asdict(row) for row in conclusion.rows],
        "boards": [asdict(table) for table in conclusion.paper_tables],
        "figures": conclusion.figures,
        "words": list(conclusion.words),
        "files": [str(path) for path in conclusion.files],
    }
    sys.stdout.write(json.dumps(fields, indent=2) + "\n")


def _train(plan: Study, budget: str, out: Path, jobs: int) -> Conclusion:
    from intrigue.studies.engine import run_study

    chosen = plan.budgets[budget]
    workers = jobs if jobs > 0 else chosen.jobs or os.cpu_count() or 1
    return run_study(plan, chosen, out, workers, _say)


def _recheck(study: str, plan: Study, out: Path | None) -> Conclusion:
    from intrigue.studies.base import CanRecheckPaper
    from intrigue.studies.engine import write_table

    if not isinstance(plan, CanRecheckPaper):
        raise ConfigError(
            [Problem("--recheck-paper", _describe_refusal(study, "computes no number of the paper", CanRecheckPaper))]
        )
    conclusion = plan.recheck()
    if out is not None:
        write_table(conclusion, out)
    return conclusion


def _conclude_files(study: str, plan: Study, sources: tuple[Path, ...], out: Path) -> Conclusion:
    from intrigue.studies.base import CanReadFiles
    from intrigue.studies.engine import write_table

    if not isinstance(plan, CanReadFiles):
        raise ConfigError(
            [Problem("--from", _describe_refusal(study, "cannot be made from files alone", CanReadFiles))]
        )
    conclusion = plan.conclude_files(sources, out)
    write_table(conclusion, out)
    return conclusion


def _describe_refusal(study: str, reason: str, kind: type) -> str:
    from intrigue.studies.registry import STUDIES

    able = [name for name in STUDIES.names() if issubclass(STUDIES.get(name).cls, kind)]
    return f"the study {study!r} {reason}. Accepted for: {', '.join(able)}."


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main(argv: list[str]) -> int:
    """Entry point."""
    return run_command(reproduce, "reproduce", argv)
