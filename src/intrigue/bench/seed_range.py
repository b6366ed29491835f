"""Seeds as a command line names them: `0:8` is 0 to 7, `0,3,5` is a list."""

from __future__ import annotations

from intrigue.errors import ConfigError, Problem


def seed_range(text: str) -> list[int]:
    """The seeds, each once. Raises ConfigError for what names none, or one twice."""
    try:
        first, _, last = text.partition(":")
        seeds = list(range(int(first), int(last))) if last else [int(each) for each in text.split(",")]
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        wrong = f"{text!r} names no seeds, a negative one, or one twice. Accepted: a range such as 0:8, or 0,3,5."
        raise ConfigError([Problem("seeds", wrong)])
    return seeds
