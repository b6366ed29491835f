"""Arguments of `train`: fixed options, and `--section.field value` for any field of the configuration.

Nothing is converted here and nothing stops at the first mistake; `intrigue.config.run.resolve` sees every value, so
that all problems can be reported together.

`--seeds 0:8` or `--seeds 0,3,5`: what was typed as a list of seeds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from intrigue.errors import ConfigError, Problem, unknown_name

VALUED = (
    *("preset", "reward", "agent", "env", "steps", "seed", "out", "device", "threads", "checkpoint_every", "config"),
    *("replay_from", "seeds"),
)
REPEATED = ("plugin",)
SWITCHES = ("quiet", "dry_run", "help")


@dataclass
class Arguments:
    """What was typed, by name; `fields` are the dotted ones."""

    positional: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    repeated: dict[str, list[str]] = field(default_factory=dict)
    switches: set[str] = field(default_factory=set)
    fields: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def parse(argv: Sequence[str]) -> Arguments:
    """The arguments sorted by kind. Dashes and underscores in names are the same."""
    found = Arguments()
    tokens = list(argv)
    while tokens:
        token = tokens.pop(0)
        if token == "-h":
            found.switches.add("help")
        elif not token.startswith("--"):
            found.positional.append(token)
        else:
            name, has_value, value = token[2:].partition("=")
            _take(found, name.replace("-", "_"), value if has_value else None, tokens)
    return found


def _take(found: Arguments, name: str, value: str | None, tokens: list[str]) -> None:
    if name in SWITCHES:
        found.switches.add(name)
        return
    if "." not in name and name not in (*VALUED, *REPEATED):
        known = [each.replace("_", "-") for each in (*VALUED, *REPEATED, *SWITCHES)]
        shown = f"--{name.replace('_', '-')}"
        found.problems.append(
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
        found.problems.append(Problem(f"--{name.replace('_', '-')}", "needs a value."))
    elif name in REPEATED:
        found.repeated.setdefault(name, []).append(value)
    elif "." in name:
        found.fields[name] = value
    else:
        found.options[name] = value


def _next_value(tokens: list[str]) -> str | None:
    if not tokens or tokens[0].startswith("--"):
        return None
    return tokens.pop(0)


MOST = 64  # ours: so many learn together on one large GPU; more are more commands
_PIECE = re.compile(r"([0-9]{1,18})(?::([0-9]{1,18}))?")  # 18 digits: whatever a 64-bit number holds


def parse_seeds(text: str) -> list[int]:
    """The seeds in ascending order; ranges leave their end out, as Python's do.

    Raises:
        ConfigError: they cannot be read, are none, too many, or some stand twice; with the fix.
    """
    seeds: list[int] = []
    for piece in text.split(","):
        found = _PIECE.fullmatch(piece.strip())
        if found is None:
            raise _problem(f"{text!r} is no list of seeds. Write 0:8 for the seeds 0 to 7, or 0,3,5.")
        first = int(found[1])
        end = first + 1 if found[2] is None else int(found[2])
        if end <= first:
            raise _problem(f"{piece.strip()!r} holds no seed: the end is left out. {first}:{first + 8} holds eight.")
        if len(seeds) + end - first > MOST:
            raise _problem(
                f"{text!r} are more than {MOST} seeds, the most for one command. Use several commands of at most "
                f"{MOST} each: --seeds {first}:{first + MOST} is a first one."
            )
        seeds += range(first, end)
    twice = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if twice:
        alone = ",".join(map(str, sorted(set(seeds))))
        raise _problem(f"{', '.join(map(str, twice))} stands more than once. Name each once: --seeds {alone}.")
    return sorted(seeds)


def _problem(message: str) -> ConfigError:
    return ConfigError([Problem("--seeds", message)])
