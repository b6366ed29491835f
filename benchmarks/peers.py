"""Scoring a rollout: our rewards beside RLeXplore's (rllte-core 1.0.1), same data, same sizes, one process.

    make bench-peers            installs rllte-core beside us and runs this

The rollout is (128, 8, 4 × 84 × 84) of random bytes. Both sides normalise observations and score without learning
(`compute(samples, sync=False)` there). Calls alternate, theirs and ours, so that both see the same machine; the figure
is the ratio of medians. Same sizes means their defaults: encodings of 128, dense layers of 256, four members; "ours,
default" is what `intrigue` uses when nothing is said (512, residual models, five members), which is more work.
NNM beside Disagreement is measured the same way, both at our defaults.
"""

from __future__ import annotations

import argparse
import functools
import json
import platform
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from intrigue.bench.rewards import SPACES, make_curiosity, random_rollout
from intrigue.bench.timing import medians
from intrigue.config.curiosity import CuriosityConfig
from intrigue.curiosity.curiosity import Curiosity
from intrigue.nn.knn import RingMemory
from intrigue.rewards.registry import REWARDS

STEPS, ENVS = 128, 8
# RLeXplore's defaults; a reward takes those of these settings that it has.
SAME = {"feature_dim": 128, "hidden": 256, "blocks": 0, "members": 4, "memory": 8_000}
PAIRS = {"rnd": "RND", "icm": "ICM", "disagreement": "Disagreement", "re3": "RE3", "e3b": "E3B"}


class Frames(gym.Env[Any, Any]):
    """Random bytes, for a constructor that insists on stepping an environment."""

    observation_space = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = gym.spaces.Discrete(6)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """A frame of noise."""
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        """Another."""
        return self.observation_space.sample(), 0.0, False, False, {}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    import rllte.xplore.reward as theirs

    device = torch.device("cpu")
    batch = random_rollout(SPACES["pixels"], STEPS, ENVS, device)
    samples = {
        "observations": batch.obs.float(),
        "actions": batch.action,
        "rewards": batch.reward,
        "terminateds": batch.terminated.float(),
        "truncateds": batch.truncated.float(),
        "next_observations": batch.next_obs.float(),
    }
    envs = gym.vector.SyncVectorEnv([Frames] * ENVS)
    rows = []
    for name, peer_name in PAIRS.items():
        peer = getattr(theirs, peer_name)(envs, obs_norm_type="none")
        peer.obs_norm = Whitened()
        if name == "re3":
            peer.storage.normal_()  # as after 1,000 steps; it fills during collection, which is not counted here
            peer.storage_full = True
        calls = {
            "peer": functools.partial(peer.compute, samples, sync=False),
            "same": scoring(sized(name), batch),
            "default": scoring(make_curiosity(name, SPACES["pixels"], device), batch),
        }
        rows.append({"reward": name, **medians(calls, device, args.repeats)})
        show(rows[-1])
    pair = {
        name: scoring(make_curiosity(name, SPACES["pixels"], device), batch) for name in ("disagreement", "nnm", "nnmc")
    }
    ours = medians(pair, device, args.repeats)
    print("ours at defaults: " + ", ".join(f"{name} {ours[name]:.0f} ms" for name in ours))
    over = {name: ours[name] / ours["disagreement"] for name in ("nnm", "nnmc")}
    print(f"over disagreement: nnm {over['nnm']:.3f}, nnmc {over['nnmc']:.3f}")
    if args.json:
        about = {"python": platform.python_version(), "torch": torch.__version__, "threads": torch.get_num_threads()}
        args.json.write_text(json.dumps({"about": about, "rollout": [STEPS, ENVS, 4, 84, 84], "rows": rows,
                                         "nnm": ours}, indent=2) + "\n")  # fmt: skip


class Whitened:
    """Fixed moments in place of theirs, so that both sides pay for the same normalisation and nobody has to step."""

    mean = torch.full((4, 84, 84), 127.5)
    var = torch.full((4, 84, 84), 5461.0)


def sized(name: str) -> Curiosity:
    """Our reward at their sizes."""
    declared = REWARDS.declaration(name)
    options = {key: declared.default(key) for key in declared.hints()}
    options |= {key: value for key, value in SAME.items() if key in options}
    return Curiosity.from_config(name, options, CuriosityConfig(), SPACES["pixels"], device="cpu", seed=0)


def scoring(curiosity: Curiosity, batch: Any) -> Callable[[], object]:
    """Prepare and score, nothing else; a memory of states is full, as after the first minutes."""
    memory = getattr(curiosity.reward, "memory", None)
    if isinstance(memory, RingMemory):
        memory.add(torch.randn(memory.rows.shape))

    @torch.no_grad()
    def call() -> object:
        return curiosity.reward.score_parts(curiosity.prepare(batch))

    return call


def show(row: dict[str, Any]) -> None:
    """One line."""
    verdict = "below" if row["same"] <= row["peer"] else "ABOVE"
    sys.stdout.write(
        f"{row['reward']:<14} RLeXplore {row['peer']:6.0f} ms   ours, same sizes {row['same']:6.0f} ms "
        f"({row['same'] / row['peer']:.2f}, {verdict})   ours, default {row['default']:6.0f} ms "
        f"({row['default'] / row['peer']:.2f})\n"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
