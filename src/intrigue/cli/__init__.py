"""The command line: one program, one small file per command. Results go to stdout, progress and errors to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from intrigue.errors import ConfigError, IntrigueError, unknown_name

COMMANDS = {
    "train": "train a curious agent; ENV defaults to the built-in maze `rooms`",
    "resume": "go on exactly where a run stopped",
    "eval": "play a trained agent",
    "finetune": "URLB's second phase: a pre-trained agent learns a task",
    "export": "a replay's episodes as ExORL's files or a Minari dataset",
    "verify": "exit 0 only if a run's selected checkpoint is whole",
    "digest": "one hash of a run's whole training state",
    "list": "rewards, agents, envs, presets or studies, one line each",
    "reproduce": "run a study: a table or figure with the paper's value next to ours",
    "report": "one self-contained HTML page from one or more runs",
    "bench": "speed on this machine: the nuclear norm, rewards, environments, training",
    "doctor": "what is installed, what is missing, and a short self-test",
}

USAGE = """usage: intrigue COMMAND [ARGUMENTS]

{commands}

Every command has --help with examples. A first run:

  intrigue train rooms --reward nnmc --steps 20000
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0 done, 2 wrong usage, 3 run failed, 4 data damaged, 130/143 interrupted."""
    # Once imported, the command modules `list` and `eval` are attributes of this module and hide the builtins.
    arguments = [*(sys.argv[1:] if argv is None else argv)]
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except IntrigueError as error:
        _print_error(error)
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output closed it (`intrigue list | head`); this is no failure.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except KeyboardInterrupt:
        _print_error(IntrigueError("interrupted before anything was saved"))
        return 130
    except MemoryError as error:
        _print_error(
            IntrigueError(
                f"out of memory: {error}. Fewer environments (--pool.num-envs) or shorter rollouts need less."
            )
        )
        return 3


def _dispatch(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        lines = "\n".join(f"  {name:<10} {summary}" for name, summary in COMMANDS.items())
        sys.stdout.write(USAGE.format(commands=lines))
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version"):
        from intrigue import __version__

        sys.stdout.write(f"intrigue {__version__}\n")
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        raise ConfigError(f"command: {unknown_name(name, COMMANDS, 'See `intrigue --help`.')}")
    command: Callable[[Sequence[str]], int] = import_module(f"intrigue.cli.{name}").main
    try:
        return command([*arguments[1:]])
    except IntrigueError:
        raise
    except RuntimeError as error:
        if "out of memory" not in str(error).lower():
            raise
        raise IntrigueError(
            f"the device is out of memory: {error}. The last checkpoint is intact. Fewer environments "
            "(--pool.num-envs), shorter rollouts (--agent.rollout-steps) or more --agent.minibatches need less."
        ) from error


def _print_error(error: IntrigueError) -> None:
    if isinstance(error, ConfigError):
        count = len(error.problems)
        head = "error:" if count == 1 else f"error: {count} problems"
        lines = [f"{head} {error.problems[0]}"] if count == 1 else [head, *(f"  - {each}" for each in error.problems)]
    else:
        lines = [f"error: {error}"]
    text = "\n".join(lines)
    printable = "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)
    try:
        sys.stderr.write(printable + "\n")
    except BrokenPipeError:
        return
