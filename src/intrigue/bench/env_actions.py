"""Random actions for timing environments."""

from __future__ import annotations

import numpy as np

from intrigue.spaces import ActionSpec, Array

FAR = 1.0  # Where a bound is infinite.


def random_actions(spec: ActionSpec, count: int, seed: int) -> Array:
    """`count` actions, each as likely as any other."""
    rng = np.random.default_rng(seed)
    if spec.kind == "continuous":
        low = np.where(np.isfinite(spec.low), spec.low, -FAR)
        high = np.where(np.isfinite(spec.high), spec.high, FAR)
        drawn: Array = rng.uniform(low, high, (count, len(spec.low))).astype(spec.dtype)
        return drawn
    chosen: Array = rng.integers(0, spec.sizes, (count, len(spec.sizes)), dtype=np.int64)
    return chosen.reshape(count, *spec.shape)
