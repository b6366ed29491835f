"""Seeds for named purposes from the one seed of a run. Knows no torch, so that environment workers can use it."""

from __future__ import annotations

import hashlib

SEED_LIMIT = 2**31


def derive_seed(seed: int, *names: str | int) -> int:
    """A seed below SEED_LIMIT that depends on the run's seed and on every name, and on nothing else."""
    text = "\0".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") % SEED_LIMIT
