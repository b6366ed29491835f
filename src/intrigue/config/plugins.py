"""Plug-in files named on the command line.

A plug-in is Python code and runs as such, so it is taken from the command line only, never from a run folder: `resume`
of a run that used one needs it again, with --plugin.
"""

from __future__ import annotations

from pathlib import Path

from intrigue.agents.registry import AGENTS
from intrigue.envs.registry import ENVS
from intrigue.errors import ConfigError, Problem
from intrigue.registry import Registry, read_declarations
from intrigue.rewards.registry import REWARDS

KINDS: dict[str, Registry] = {"reward": REWARDS, "agent": AGENTS, "env": ENVS}  # type: ignore[type-arg]


def add_plugin(path: Path) -> None:
    """Add every reward, agent and environment that the file registers."""
    path = _existing(path, "--plugin")
    found = 0
    for kind, registry in KINDS.items():
        if _declared(path, kind):
            registry.add_file(path)
            found += 1
    if not found:
        raise ConfigError(
            [Problem("--plugin", f"{path} registers nothing. Use @register_reward, @register_agent or @register_env.")]
        )


def add_selected_plugin(kind: str, selector: str) -> str:
    """The registered name behind `path/to/file.py` or `path/to/file.py:Class`, and adds the file."""
    text, _, class_name = selector.partition(".py:")
    path = _existing(Path(text if text.endswith(".py") else text + ".py"), f"--{kind}")
    declared = _declared(path, kind)
    chosen = [each for each in declared if not class_name or each[1] == class_name]
    if not chosen:
        classes = ", ".join(sorted({each[1] for each in declared})) or "none"
        raise ConfigError(
            [Problem(f"--{kind}", f"{path} registers no {kind} class {class_name!r}. It has: {classes}.")]
        )
    KINDS[kind].add_file(path)
    return chosen[0][0]


def plugin_files() -> list[Path]:
    """Every plug-in file added so far."""
    return sorted({path for registry in KINDS.values() for path in registry.extra_files()})


def _declared(path: Path, kind: str) -> list[tuple[str, str]]:
    try:
        return [(each.name, each.class_name) for each in read_declarations(path, f"register_{kind}")]
    except (SyntaxError, ValueError, NameError, KeyError) as error:
        raise ConfigError([Problem(f"--{kind}", f"{path} cannot be read as a plug-in: {error}.")]) from error


def _existing(path: Path, option: str) -> Path:
    if not path.is_file():
        raise ConfigError([Problem(option, f"{path} is not a file.")])
    return path.resolve()
