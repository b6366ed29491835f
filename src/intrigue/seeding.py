"""Seeds for named purposes from the one seed of a run, and lists of seeds as they are typed. Loads no torch."""

from __future__ import annotations

import hashlib
import re

from intrigue.errors import ConfigError, Problem

SEED_LIMIT = 2**31
MAX_SEEDS = 64  # ours: as many as train together on one large GPU
_PIECE = re.compile(r"([0-9]{1,18})(?::([0-9]{1,18}))?")  # 18 digits: whatever a 64-bit number holds


def derive_seed(seed: int, *names: str | int) -> int:
    """A seed below SEED_LIMIT that depends on the run's seed and on every name, and on nothing else."""
    text = "\0".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") % SEED_LIMIT


def parse_seeds(text: str) -> list[int]:
    """The seeds in `0:8` or `0,3,5`, in ascending order; ranges leave their end out, as Python's do.

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
        if len(seeds) + end - first > MAX_SEEDS:
            raise _problem(
                f"{text!r} are more than {MAX_SEEDS} seeds, the most for one command. Use several commands of at most "
                f"{MAX_SEEDS} each: --seeds {first}:{first + MAX_SEEDS} is a first one."
            )
        seeds += range(first, end)
    twice = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if twice:
        alone = ",".join(map(str, sorted(set(seeds))))
        raise _problem(f"{', '.join(map(str, twice))} stands more than once. Name each once: --seeds {alone}.")
    return sorted(seeds)


def _problem(message: str) -> ConfigError:
    return ConfigError([Problem("--seeds", message)])
