"""`intrigue list KIND`."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Literal

import tyro

from intrigue.api import describe_kind, find_citations
from intrigue.cli.options import Json, Plugins, run_command
from intrigue.config.plugins import add_plugin
from intrigue.errors import ConfigError, Problem

Kind = Literal["rewards", "agents", "envs", "presets", "studies"]
Cite = Annotated[
    str | None, tyro.conf.arg(metavar="NAME", help="print BibTeX for a reward, or for those of an expression")
]


def list_kind(
    kind: Annotated[tyro.conf.Positional[Kind], tyro.conf.arg(help="what to list")],
    cite: Cite = None,
    json_output: Json = False,
    plugin: Plugins = (),
) -> int:
    """List plug-ins, presets or studies, one line each.

    Examples:
      intrigue list rewards
      intrigue list rewards --cite nnm
      intrigue list envs --json
    """
    for path in plugin:
        add_plugin(path)
    if cite is not None and kind != "rewards":
        text = f"only rewards have citations, not {kind}. Use `intrigue list rewards --cite NAME`."
        raise ConfigError([Problem("--cite", text)])
    entries = describe_kind(kind) if cite is None else find_citations(cite)
    if json_output:
        sys.stdout.write(json.dumps(entries, indent=2) + "\n")
    elif cite is not None:
        # Rewards of one paper are cited once.
        sys.stdout.write("\n\n".join(dict.fromkeys(entries.values())) + "\n")
    else:
        width = max((len(name) for name in entries), default=0)
        for name, summary in entries.items():
            sys.stdout.write(f"{name:<{width}}  {summary}\n")
    return 0


def main(argv: list[str]) -> int:
    """Entry point."""
    return run_command(list_kind, "list", argv)
