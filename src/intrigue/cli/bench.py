"""`intrigue bench TARGET`: one module of `intrigue.bench` per target, whose `command` is a typed function."""

from __future__ import annotations

import sys
from importlib import import_module

from intrigue.cli.options import run_command
from intrigue.errors import ConfigError, unknown_name

TARGETS = {
    "score": "the nuclear norm: time against one read of its input and torch's functions, error against the exact SVD",
    "rewards": "what each reward costs per transition, in time and memory",
    "env": "a pool of environments: steps per second against the bare environment's, time to start, memory",
    "train": "training with a preset: steps per second against the pool's limit, the share of each phase",
}
USAGE = """usage: intrigue bench TARGET [ARGUMENTS]

Speed on this machine, with the reference it is compared with.

{targets}

Every target has --help. Examples:
  intrigue bench score
  intrigue bench rewards --help
  intrigue bench env atari/Breakout --envs 8 --workers 2
"""


def main(argv: list[str]) -> int:
    """Entry point."""
    if not argv or argv[0] in ("-h", "--help"):
        lines = "\n".join(f"  {name:<10} {summary}" for name, summary in TARGETS.items())
        sys.stdout.write(USAGE.format(targets=lines))
        return 0 if argv else 2
    target = argv[0]
    if target not in TARGETS:
        raise ConfigError(f"target: {unknown_name(target, TARGETS, 'See `intrigue bench --help`.')}")
    return run_command(import_module(f"intrigue.bench.{target}").command, f"bench {target}", argv[1:])
