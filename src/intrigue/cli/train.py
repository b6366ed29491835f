"""`intrigue train [ENV] [options]`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from intrigue.cli.arguments import Arguments, parse
from intrigue.config.plugins import add_plugin, add_selected_plugin
from intrigue.config.run import RunConfig, flatten_json, resolve
from intrigue.errors import ConfigError, Problem
from intrigue.presets import preset_layer
from intrigue.seeding import parse_seeds

CONFIG_LIMIT_BYTES = 1 << 20  # a configuration is a few kilobytes; anything larger is another kind of file


def main(argv: list[str]) -> int:
    """Train, or with --dry-run print the resolved configuration."""
    arguments = parse(argv)
    for path in arguments.repeated.get("plugin", []):
        add_plugin(Path(path))
    if "help" in arguments.switches:
        layers, problems = read_layers(arguments)
        if problems:
            raise ConfigError(problems)
        from intrigue.cli.train_help import print_help

        print_help(arguments, layers)
        return 0
    config, seeds = configure_seeds(arguments)
    if "dry_run" in arguments.switches:
        json.dump(config.to_json(), sys.stdout, indent=2)
        sys.stdout.write("\n")
        return 0
    from intrigue.cli.options import relative_path
    from intrigue.run.driver import SeedRun, start, start_seeds

    out = Path(arguments.options["out"]) if "out" in arguments.options else None
    replay_from = arguments.options.get("replay_from")
    quiet, prepare = "quiet" in arguments.switches, None
    if replay_from is not None:
        from intrigue.datasets.load import prefill_from

        prepare = prefill_from(Path(replay_from))
    if seeds:
        runs = start_seeds([SeedRun(config.with_run(seed=each), prepare) for each in seeds], out=out, quiet=quiet)
        folder = runs[0].path.parent
    else:
        folder = start(config, out=out, quiet=quiet, prepare=prepare).path
    sys.stdout.write(f"{relative_path(folder)}\n")
    return 0


def configure_seeds(arguments: Arguments) -> tuple[RunConfig, list[int]]:
    """The settings that these arguments describe, with the first of several seeds, and the seeds; none without --seeds.

    Raises:
        ConfigError: with every problem of the settings and of the seeds.
    """
    seeds: list[int] = []
    if (text := arguments.options.get("seeds")) is not None:
        try:
            seeds = parse_seeds(text)
        except ConfigError as error:
            arguments.problems += error.problems
        if "seed" in arguments.options or "run.seed" in arguments.fields:
            arguments.problems.append(
                Problem(
                    "--seeds", f"cannot be combined with --seed. Leave one out: --seeds {text} alone names every seed."
                )
            )
    config = configure(arguments)
    return (config.with_run(seed=seeds[0]) if seeds else config), seeds


def configure(arguments: Arguments) -> RunConfig:
    """The settings that these arguments describe. Raises ConfigError with every problem."""
    layers, unread = read_layers(arguments)
    problems = [*arguments.problems, *unread]
    typed: dict[str, Any] = {**arguments.options, **arguments.fields}
    for name in ("preset", "config", "out", "replay_from", "seeds"):
        typed.pop(name, None)
    if len(arguments.positional) > 1:
        extra = ", ".join(repr(each) for each in arguments.positional[1:])
        problems.append(Problem("", f"one ENV is accepted, but {extra} followed. Options begin with --."))
    if arguments.positional:
        typed["env"] = arguments.positional[0]
    for kind in ("reward", "agent", "env"):
        if ".py" in typed.get(kind, ""):
            try:
                typed[kind] = add_selected_plugin(kind, typed[kind])
            except ConfigError as error:
                problems += error.problems
                del typed[kind]
    try:
        config = resolve(*layers, typed)
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(problems)
    return config


def read_layers(arguments: Arguments) -> tuple[list[dict[str, Any]], list[Problem]]:
    """The settings of --preset and --config as layers, and their problems."""
    layers: list[dict[str, Any]] = []
    problems: list[Problem] = []
    for source, read in (("preset", preset_layer), ("config", read_config_file)):
        if source in arguments.options:
            try:
                layers.append(read(arguments.options[source]))
            except ConfigError as error:
                problems += error.problems
    return layers, problems


def read_config_file(path: str) -> dict[str, Any]:
    """A config.json as a layer."""
    file = Path(path)
    try:
        if file.stat().st_size > CONFIG_LIMIT_BYTES:
            raise ConfigError([Problem("--config", f"{path} is larger than a configuration can be.")])
        tree = json.loads(file.read_text(encoding="utf-8-sig"), object_pairs_hook=_refuse_repeated_keys)
    except OSError as error:
        raise ConfigError([Problem("--config", f"cannot read {path}: {error.strerror}.")]) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError([Problem("--config", f"{path} is not JSON: {error}.")]) from error
    return flatten_json(tree)


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    repeated = sorted({key for key in keys if keys.count(key) > 1})
    if repeated:
        raise ValueError(f"key {repeated[0]!r} stands twice")
    return dict(pairs)
