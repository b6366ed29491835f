"""`intrigue train --help`: the options, and every field of the chosen environment, agent and reward with its source."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from intrigue.cli.arguments import Arguments
from intrigue.config.reward_expression import parse_reward
from intrigue.config.run import DEFAULT_NAMES, PLAIN, RunConfig, declaration_of, resolve
from intrigue.config.schema import describe_type, fields_of
from intrigue.errors import ConfigError
from intrigue.registry import EmptyConfig, field_notes

USAGE = """usage: intrigue train [ENV] [options] [--section.field VALUE ...]

Train a curious agent and keep the run in a folder.

  ENV                     rooms (default), chain, noisy-tv, atari/<Game>,
                          dmc/<domain>_<task>, gym/<id>;
                          see `intrigue list envs`
  --preset NAME           start from a named configuration;
                          see `intrigue list presets`
  --reward NAME           the bonus: a name, path/to/file.py:Class, or an
                          expression of names such as "0.5*nnm + rnd";
                          see `intrigue list rewards`
  --agent NAME            the learner; see `intrigue list agents`
  --steps N               agent steps, summed over environments
                          (1e6 and 1_000_000 are fine)
  --seed N                everything random comes from it
  --seeds A:B             several runs in one command, seeds A to B - 1, or a
                          list 0,3,5: each in a folder of its own, DIR/seed-A
                          and on; those of URLB's settings learn together,
                          others one after another
  --out DIR               the run's folder; default
                          runs/<env>__<reward>__<agent>__<seed>__<number>
  --device auto|cpu|cuda  auto is the GPU where there is one
  --threads N             torch's threads on the CPU
  --checkpoint-every N    agent steps between checkpoints
  --config FILE           start from a config.json, e.g. another run's
  --replay-from FOLDER    begin with the episodes that `intrigue export` wrote;
                          for agents that have a replay
  --plugin FILE           take rewards, agents and environments from a Python
                          file (may be repeated)
  --dry-run               print the resolved configuration and stop
  --quiet                 no progress on stderr

examples:
  intrigue train
  intrigue train rooms --reward nnmc --reward.source knn --out runs/maze
  intrigue train gym/CartPole-v1 --reward rnd --curiosity.ext-coef 1 --steps 1e5
  intrigue train --config runs/maze/config.json --seed 1
  intrigue train dmc/walker --preset nnm-urlb --seeds 0:8 --out runs/walker

Fields below are those of the chosen ENV, agent and reward, with the values of
--preset and --config where they are given."""
NOTE_WIDTH = 36  # ours: with fewer columns left, a note stands below its field
BELOW = " " * 6  # the indent of a note below its field


def print_help(arguments: Arguments, layers: Sequence[Mapping[str, Any]] = ()) -> None:
    """Write the help for the names given so far, with the values of `layers`: the preset and the config file.

    Raises:
        ConfigError: a layer is wrong by itself.
    """
    names = {name: text for name, text in arguments.options.items() if name in DEFAULT_NAMES}
    names |= {"env": arguments.positional[0]} if arguments.positional else {}
    config = _resolved(layers, names)
    values = config.to_json()
    console = Console(highlight=False)
    console.print(USAGE, markup=False, soft_wrap=True)  # lines are broken above: below 80 columns let them be
    for section, resolved in zip(DEFAULT_NAMES, (config.env_id, config.agent_name, config.reward_name), strict=True):
        own = declaration_of(section, resolved)
        name = names.get(section, resolved)
        try:
            declared = declaration_of(section, parse_reward(name)[0] if section == "reward" else name)
        except ConfigError:
            declared = own
        shown = values[section] if declared.name == own.name else {}
        if declared.config is not EmptyConfig:
            rows = [
                (key, describe_type(hint), shown.get(key, declared.default(key)), declared.notes.get(key, ""))
                for key, hint in declared.hints().items()
            ]
            _print_section(console, section, f"{section} {declared.name}", rows)
    for section, plain in PLAIN.items():
        notes = field_notes(ast.parse(inspect.getsource(plain)), inspect.getsource(plain))[plain.__name__]
        rows = [
            (key, describe_type(hint), values[section][key], notes.get(key, ""))
            for key, hint in fields_of(plain).items()
        ]
        _print_section(console, section, section, rows)


def _resolved(layers: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> RunConfig:
    """The run so far. Wrong names are left out, so that help can show the right ones."""
    try:
        return resolve(*layers, names)
    except ConfigError:
        return resolve(*layers)


def _print_section(console: Console, section: str, title: str, rows: list[tuple[str, str, Any, str]]) -> None:
    """One line per field, its note on the same line where there is room, else below."""
    flags = [f"  --{section}.{key.replace('_', '-')}" for key, *_ in rows]
    values = [f"{kind} = {_as_typed(default)}" for _, kind, default, _ in rows]
    flag_width, value_width = max(map(len, flags)), max(map(len, values))
    note_column = flag_width + value_width + 4
    same_line = console.width - note_column >= NOTE_WIDTH
    indent = " " * note_column if same_line else BELOW
    console.print(f"\n{title}", style="italic", markup=False)
    for flag, value, (*_, note) in zip(flags, values, rows, strict=True):
        wrapped = textwrap.wrap(
            note, console.width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
        )
        line = Text.assemble(f"{flag:{flag_width}}  ", (value, "cyan"))
        if same_line and wrapped:
            line.append(" " * (value_width - len(value) + 2) + wrapped.pop(0).lstrip())
        console.print(line, *wrapped, sep="\n", soft_wrap=True)


def _as_typed(value: Any) -> str:
    """The value as one would type it: several with commas between."""
    return ",".join(map(str, value)) if isinstance(value, tuple | list) and value else str(value)
