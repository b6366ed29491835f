"""A policy learns skills that can be told apart: the whole way from a skill's draw to the states it leads to."""

from __future__ import annotations

import math

from intrigue.config.run import resolve
from intrigue.run.driver import start

# One room of 49 cells, four skills of ten steps. Measured over seeds 0 to 3: 51 % to 72 % guessed right after these
# 25,600 steps, 96 % after 200,000.
ROOM = {
    "env": "rooms", "env.rooms": 1, "env.room_size": 7, "env.max_steps": 20, "pool.num_envs": 64, "pool.workers": 0,
    "agent.hidden": 64, "agent.rollout_steps": 40, "agent.learning_rate": 1e-3, "curiosity.learning_rate": 1e-3,
    "reward": "diayn", "reward.skills": 4, "reward.every": 10, "reward.hidden": 64,
    "steps": 25_600, "threads": 1, "device": "cpu",
}  # fmt: skip


def test_diayns_skills_come_to_be_told_apart(tmp_path):
    metrics = start(resolve(ROOM), out=tmp_path / "run", quiet=True).metrics()
    guessed, bonus = metrics["intrinsic/part/accuracy"], metrics["intrinsic/raw_mean"]
    assert guessed[0] < 0.35, "at first a guess among four"
    assert guessed[-1] > 0.42
    assert 0.2 < bonus[-1] < math.log(4)
