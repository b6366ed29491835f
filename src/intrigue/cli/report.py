"""`intrigue report DIR… [--out FILE.html]`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import tyro

from intrigue.cli.options import Plugins, run_command
from intrigue.config.plugins import add_plugin
from intrigue.report.text import escape_unprintable

RunDirs = Annotated[
    tyro.conf.Positional[tuple[Path, ...]],
    tyro.conf.arg(metavar="DIR…", help="folders of runs, or folders that hold such folders"),
]


def report(
    folders: RunDirs,
    out: Annotated[
        Path | None,
        tyro.conf.arg(metavar="FILE.html", help="the page; default: DIR/report.html for one run, else ./report.html"),
    ] = None,
    title: Annotated[str | None, tyro.conf.arg(metavar="TEXT", help="the page's title")] = None,
    plugin: Plugins = (),
) -> int:
    """Write one self-contained HTML page about one or more runs, and its figures as PNG and SVG next to it.

    Runs that differ only in their seed are averaged; all others are compared, and so are fine-tunings from
    other snapshots. The path of the page goes to stdout, what the runs show to stderr.

    Examples:
      intrigue report runs/maze
      intrigue report runs/nnmc-0 runs/nnmc-1 runs/none-0 --out compare.html
      intrigue report runs --out all.html
    """
    from intrigue.report.page import compose_report, save_report

    for path in plugin:
        add_plugin(path)
    composed = compose_report(folders, out, title=title)
    page = save_report(composed)
    # The sentence is for a person; a program reads the path alone.
    sys.stderr.writelines(f"{line}\n" for line in composed.headlines)
    sys.stdout.write(f"{escape_unprintable(str(page))}\n")
    return 0


def main(argv: list[str]) -> int:
    """Entry point."""
    return run_command(report, "report", argv)
