"""Plain PPO on Atari: ours beside Stable-Baselines3's, same sizes, one process, in turns.

    make bench-sb3            fetches stable-baselines3 into a folder of its own and runs this

Breakout, 8 environments, rollouts of 128 steps, 4 epochs over 4 minibatches of 256, the Nature network, Adam, 2 torch
threads. Preprocessing is of one kind on both sides: no-op starts, four frames a step, the brighter of two, 84 x 84 by
area, lives as episodes, rewards clipped, four frames stacked. Theirs is their own `AtariWrapper` and `VecFrameStack`,
once in this process (DummyVecEnv) and once in others (SubprocVecEnv, a process per environment); the faster one counts.
Ours steps in 2 workers.

One turn is one rollout and its update. Turns alternate, so that what else the machine does falls on all alike; the
first of each is not counted. The figures are medians over turns, the ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from intrigue.bench.machine import machine
from intrigue.config.run import resolve
from intrigue.training.build import build
from intrigue.training.on_policy import train_on_policy
from intrigue.training.parts import Parts

GAME = "Breakout"
ENVS, STEPS, EPOCHS, MINIBATCHES, THREADS = 8, 128, 4, 4, 2
TARGET = 1.3

Turn = Callable[[], object]


def ours() -> tuple[Parts, Turn]:
    """Our PPO without a bonus, and one rollout with its update."""
    config = resolve(
        {
            "env": f"atari/{GAME}",
            "env.protocol": "dqn",
            "reward": "none",
            "curiosity.ext_coef": 1.0,
            "curiosity.ext_clip": 1.0,
            "curiosity.obs_norm": "none",
            "agent.rollout_steps": STEPS,
            "agent.epochs": EPOCHS,
            "agent.minibatches": MINIBATCHES,
            "agent.trunk": "nature",
            "agent.features": 512,
            "pool.num_envs": ENVS,
            "pool.workers": 2,
            "device": "cpu",
        }
    )
    parts = build(config)
    parts.collector.start()
    steps = train_on_policy(parts, 0)

    def turn() -> None:
        for _ in range(STEPS):
            next(steps)

    return parts, turn


def theirs(in_processes: bool) -> tuple[Any, Turn]:
    """Their PPO at the same sizes."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

    kind = SubprocVecEnv if in_processes else DummyVecEnv
    # `ale_py:` imports the emulator, and with it the names of its games, in whatever process builds one.
    games = make_atari_env(f"ale_py:{GAME}NoFrameskip-v4", n_envs=ENVS, seed=0, vec_env_cls=kind)
    model = PPO(
        "CnnPolicy",
        VecFrameStack(games, 4),
        learning_rate=2.5e-4,
        n_steps=STEPS,
        n_epochs=EPOCHS,
        batch_size=ENVS * STEPS // MINIBATCHES,
        clip_range=0.2,
        ent_coef=0.01,
        seed=0,
        device="cpu",
    )

    def turn() -> None:
        model.learn(ENVS * STEPS, reset_num_timesteps=False, log_interval=None)

    return model, turn


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(THREADS)
    parts, our_turn = ours()
    dummy, dummy_turn = theirs(in_processes=False)
    processes, processes_turn = theirs(in_processes=True)
    turns = {"intrigue": our_turn, "sb3-dummy": dummy_turn, "sb3-subproc": processes_turn}
    try:
        speeds = measure(turns, args.rounds)
    finally:
        parts.close()
        dummy.get_env().close()
        processes.get_env().close()
    medians = {name: statistics.median(each) for name, each in speeds.items()}
    faster = max(("sb3-dummy", "sb3-subproc"), key=lambda name: medians[name])
    ratio = medians["intrigue"] / medians[faster]
    for name, speed in medians.items():
        low, high = min(speeds[name]), max(speeds[name])
        sys.stdout.write(f"{name:<12} {speed:6.0f} steps/s   ({low:.0f} to {high:.0f} over {args.rounds} turns)\n")
    verdict = "holds" if ratio >= TARGET else "SHORT"
    sys.stdout.write(f"intrigue / {faster}: {ratio:.2f} (wanted {TARGET}: {verdict})\n")
    if args.json:
        import stable_baselines3

        sizes = {"game": GAME, "envs": ENVS, "rollout": STEPS, "epochs": EPOCHS, "minibatches": MINIBATCHES}
        about = {**machine(torch.device("cpu")), "stable_baselines3": stable_baselines3.__version__}
        figures = {"about": about, "sizes": sizes, "steps_per_second": medians, "turns": speeds,
                   "ratio": ratio, "beside": faster}  # fmt: skip
        args.json.write_text(json.dumps(figures, indent=2) + "\n")


def measure(turns: dict[str, Turn], rounds: int) -> dict[str, list[float]]:
    """Steps per second of every turn, taken in rounds."""
    for turn in turns.values():
        turn()
    speeds: dict[str, list[float]] = {name: [] for name in turns}
    for done in range(rounds):
        for name, turn in turns.items():
            began = time.perf_counter()
            turn()
            speeds[name].append(ENVS * STEPS / (time.perf_counter() - began))
        latest = ", ".join(f"{name} {each[-1]:.0f}" for name, each in speeds.items())
        sys.stderr.write(f"round {done + 1} of {rounds}, steps/s: {latest}\n")
    return speeds


if __name__ == "__main__":
    main()
