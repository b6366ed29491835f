"""Every default that a comment gives a source or a meaning stands in `sourced_defaults.json` too.

A figure of a paper cannot change by a slip: it changes in the source and in that table, or this test is red. Defaults
that a plug-in's registration sets for one of its names (`nnmc` is a form of `nnm`) are pinned under that name.
"""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from intrigue.api import REGISTRIES
from intrigue.config.run import PLAIN
from intrigue.config.schema import fields_of
from intrigue.registry import field_notes

TABLE = Path(__file__).with_name("sourced_defaults.json")
PINNED: dict[str, dict[str, Any]] = json.loads(TABLE.read_text(encoding="utf-8"))
PLUGINS = [(kind, name) for kind in ("rewards", "agents", "envs") for name in REGISTRIES[kind].names()]


def plugin_defaults(kind: str, name: str) -> dict[str, Any]:
    """The commented fields of a plug-in's configuration with their defaults."""
    declared = REGISTRIES[kind].declaration(name)
    return {key: declared.default(key) for key in declared.hints() if key in declared.notes}


def plain_defaults(section: str) -> dict[str, Any]:
    """The same of a section of the configuration that is no plug-in's."""
    config = PLAIN[section]
    source = inspect.getsource(config)
    notes = field_notes(ast.parse(source), source)[config.__name__]
    return {key: getattr(config(), key) for key in fields_of(config) if key in notes}


def check(section: str, defaults: dict[str, Any]) -> None:
    """Equal to the table, in type as well: 1 is not 1.0 and not True."""
    as_json = json.loads(json.dumps(defaults))
    pinned = PINNED.get(section, {})
    problems = [
        f'"{key}": {json.dumps(value, ensure_ascii=False)}' + (f" instead of {pinned[key]!r}" if key in pinned else "")
        for key, value in as_json.items()
        if key not in pinned or json.dumps(pinned[key]) != json.dumps(value)
    ]
    assert not problems, f"if it is meant, write into {TABLE.name}, under {section!r}:\n  " + "\n  ".join(problems)
    gone = sorted(set(pinned) - set(as_json))
    assert not gone, f"{section} has no such field with a comment any more; take out of {TABLE.name}: {gone}"


@pytest.mark.parametrize(("kind", "name"), PLUGINS)
def test_defaults_of_plugins_are_those_of_their_sources(kind: str, name: str) -> None:
    check(f"{kind[:-1]}.{name}", plugin_defaults(kind, name))


@pytest.mark.parametrize("section", PLAIN)
def test_defaults_of_runs_are_those_of_their_sources(section: str) -> None:
    check(section, plain_defaults(section))


def test_the_table_holds_nothing_stale() -> None:
    known = {f"{kind[:-1]}.{name}" for kind, name in PLUGINS} | set(PLAIN)
    assert set(PINNED) <= known, f"no such plug-in or section: {set(PINNED) - known}"


def test_a_changed_or_new_default_is_named_with_the_line_to_write() -> None:
    changed = plugin_defaults("rewards", "icm") | {"blocks": 5, "fresh": 0.5}
    with pytest.raises(AssertionError, match=r'"blocks": 5 instead of 4\n +"fresh": 0.5'):
        check("reward.icm", changed)
    with pytest.raises(AssertionError, match="no such field"):
        check("reward.icm", {key: value for key, value in changed.items() if key in ("variant",)})
