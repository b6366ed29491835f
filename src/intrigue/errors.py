"""Exceptions for failures a user can meet, each with its exit code.

Every message has three parts: what is wrong with the value, what is accepted, what to do.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


class IntrigueError(Exception):
    """A failure whose message is for the user; the command line prints it without a traceback."""

    exit_code = 3


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a configuration: the setting's path, and the message."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class ConfigError(IntrigueError):
    """Wrong usage or configuration; raised before anything is created, with all problems at once."""

    exit_code = 2

    def __init__(self, problems: Sequence[Problem] | str) -> None:
        self.problems = [Problem("", problems)] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class RunError(IntrigueError):
    """The run failed during training; its last checkpoint is intact."""


class EnvironmentFault(RunError):
    """An environment raised, died, hung or broke its own contract; the message names it."""


class NonFiniteError(RunError):
    """NaN or infinity where a number is needed; the message names the tensor."""


class StorageError(RunError):
    """The disk refused a write (full, read-only, gone); what was there before is untouched."""


class CheckpointError(IntrigueError):
    """A checkpoint or data file is missing, damaged or of another format."""

    exit_code = 4


class Interrupted(IntrigueError):
    """A signal stopped the run after its state was saved."""

    def __init__(self, signal_number: int, message: str) -> None:
        self.exit_code = 128 + signal_number
        super().__init__(message)


class SnapshotUnsupported(IntrigueError):
    """This environment cannot save its state; `resume` then starts its episode anew and says so."""


@contextlib.contextmanager
def name_seed_in_errors(seed: int) -> Iterator[None]:
    """A scope in which the message of every RunError gets the prefix `seed N: `."""
    try:
        yield
    except RunError as error:
        raise type(error)(f"seed {seed}: {error}") from error


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, or None when nothing is close."""
    candidates = list(known)
    folded = {candidate.lower(): candidate for candidate in candidates}
    match = difflib.get_close_matches(name.lower(), list(folded), n=1, cutoff=0.5)
    return folded[match[0]] if match else None


def unknown_name(name: str, known: Iterable[str], hint: str = "") -> str:
    """A sentence for an unknown name, with the nearest known one and the whole list."""
    names = sorted(known)
    near = nearest(name, names)
    guess = f" Did you mean {near!r}?" if near else ""
    return f"unknown name {name!r}.{guess} Known: {', '.join(names) or 'none'}.{' ' + hint if hint else ''}"
