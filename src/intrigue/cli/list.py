"""`intrigue list KIND`."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Literal

import tyro

from intrigue.catalogue import catalogue
from intrigue.cli.shell import Json, Plugins, call
from intrigue.plugins import add_plugin

Kind = Literal["rewards", "agents", "envs", "presets", "studies"]


def list_kind(
    kind: Annotated[tyro.conf.Positional[Kind], tyro.conf.arg(help="what to list")],
    json_output: Json = False,
    plugin: Plugins = (),
) -> int:
    """What there is, one line each.

    Examples:
      intrigue list rewards
      intrigue list envs --json
    """
    for path in plugin:
        add_plugin(path)
    entries = catalogue(kind)
    if json_output:
        sys.stdout.write(json.dumps(entries, indent=2) + "\n")
        return 0
    width = max((len(name) for name in entries), default=0)
    for name, summary in entries.items():
        sys.stdout.write(f"{name:<{width}}  {summary}\n")
    return 0


def main(argv: list[str]) -> int:
    """Entry point."""
    return call(list_kind, "list", argv)
