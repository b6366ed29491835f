"""One process that steps one environment with random actions and nothing around it: the ceiling of a pool's worker.

Started as `python -m intrigue.bench.env_bare ENV SEED CORE SECONDS`. Says `ready` when it is built, begins when it
reads a line, and then says how many agent steps a second it took. Of an Atari game only the emulator runs: an action
for as many frames as a step has, a new game when one is over; no picture is read.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from intrigue.envs.atari.games import ROM_ID_OF
from intrigue.envs.make import make_env
from intrigue.envs.registry import split_id
from intrigue.spaces import ActionSpec, Array, make_spaces

DRAWN = 4096  # Random actions drawn in advance, and used again and again.
SETTLING = 50  # Steps before the clock starts.
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


def main() -> None:
    """See the module."""
    env_id, seed, core, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    if core >= 0 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    step = (emulator_step if split_id(env_id)[0] == "atari" else env_step)(env_id, seed)
    for number in range(SETTLING):
        step(number)
    print("ready", flush=True)
    sys.stdin.readline()
    began, number = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        step(number % DRAWN)
        number += 1
    print(number / (time.perf_counter() - began), flush=True)


def emulator_step(env_id: str, seed: int) -> Callable[[int], None]:
    """Four frames of the emulator alone. Games begin anew as fast as is known to be exact (`emulator`)."""
    from intrigue.envs.atari.emulator import Emulator
    from intrigue.envs.atari.protocols import PROTOCOLS

    frames = PROTOCOLS["disagreement"].skip
    emulator = Emulator(ROM_ID_OF[split_id(env_id)[1]])
    actions = np.random.default_rng(seed).choice(emulator.minimal_actions, DRAWN).tolist()

    def step(number: int) -> None:
        action, act = actions[number], emulator.console.act
        for _ in range(frames):
            act(action)
        if emulator.console.game_over():
            emulator.restart()

    return step


def env_step(env_id: str, seed: int) -> Callable[[int], None]:
    """`Env.step`, and `reset` at the end of an episode."""
    env = make_env(env_id, {})
    actions: Any = random_actions(make_spaces(env.info.obs_space, env.info.action_space).action, DRAWN, seed)
    env.reset(seed)

    def step(number: int) -> None:
        given = env.step(actions[number])
        if given.terminated or given.truncated:
            env.reset(None)

    return step


if __name__ == "__main__":
    main()
