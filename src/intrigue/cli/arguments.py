"""The argument parser of `train`: fixed options, and `--section.field value` for any field of the configuration.

It converts no values and does not stop at the first mistake: `intrigue.config.run.resolve` gets every value and reports
all problems together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from intrigue.errors import Problem, unknown_name

VALUED = (
    *("preset", "reward", "agent", "env", "steps", "seed", "out", "device", "threads", "checkpoint_every", "config"),
    *("replay_from", "seeds"),
)
REPEATED = ("plugin",)
SWITCHES = ("quiet", "dry_run", "help")


@dataclass
class Arguments:
    """The arguments by kind and name; `fields` are the dotted ones."""

    positional: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    repeated: dict[str, list[str]] = field(default_factory=dict)
    switches: set[str] = field(default_factory=set)
    fields: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def parse(argv: Sequence[str]) -> Arguments:
    """The arguments by kind. Dashes and underscores in names are the same."""
    arguments = Arguments()
    tokens = list(argv)
    while tokens:
        token = tokens.pop(0)
        if token == "-h":
            arguments.switches.add("help")
        elif not token.startswith("--"):
            arguments.positional.append(token)
        else:
            name, has_value, value = token[2:].partition("=")
            _add_option(arguments, name.replace("-", "_"), value if has_value else None, tokens)
    return arguments


def _add_option(arguments: Arguments, name: str, value: str | None, tokens: list[str]) -> None:
    if name in SWITCHES:
        arguments.switches.add(name)
        return
    if "." not in name and name not in (*VALUED, *REPEATED):
        known = [each.replace("_", "-") for each in (*VALUED, *REPEATED, *SWITCHES)]
        shown = f"--{name.replace('_', '-')}"
        arguments.problems.append(
            Problem(shown, unknown_name(name.replace("_", "-"), known, "See `intrigue train --help`."))
        )
        if tokens and not tokens[0].startswith("--"):
            tokens.pop(0)
        return
    if value is None:
        value = _next_value(tokens)
        if value is None and "." in name:
            # `--agent.ignore-done` alone means true, `--agent.no-ignore-done` means false.
            section, _, field_name = name.rpartition(".")
            negated = field_name.startswith("no_") and not field_name.startswith("no_op")
            name, value = (f"{section}.{field_name[3:]}", "false") if negated else (name, "true")
    if value is None:
        arguments.problems.append(Problem(f"--{name.replace('_', '-')}", "needs a value."))
    elif name in REPEATED:
        arguments.repeated.setdefault(name, []).append(value)
    elif "." in name:
        arguments.fields[name] = value
    else:
        arguments.options[name] = value


def _next_value(tokens: list[str]) -> str | None:
    if not tokens or tokens[0].startswith("--"):
        return None
    return tokens.pop(0)
