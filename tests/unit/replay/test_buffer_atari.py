"""Frames of Atari are kept once, and what is rebuilt from them is what the environment itself showed."""

from __future__ import annotations

import numpy as np
import torch

from intrigue.config.run import resolve
from intrigue.envs.make import make_env
from intrigue.seeding import derive_seed
from intrigue.training.build import build

LAYER = {
    "env": "atari/Breakout",
    "env.protocol": "dqn",
    "agent": "dqn",
    "agent.capacity": 400,
    "agent.learning_starts": 10**6,
    "agent.features": 8,
    "reward": "none",
    "pool.num_envs": 2,
    "pool.workers": 0,
    "device": "cpu",
    "threads": 1,
}


def test_stacks_rebuilt_from_single_frames_equal_the_environments_own():
    cfg = resolve(LAYER)
    parts = build(cfg)
    collector, replay = parts.collector, parts.collector.replay
    assert replay.store.ring.fields["frame"].shape[1:] == (84, 84)
    envs = [make_env(cfg.env_id, cfg.env_options) for _ in range(2)]
    shown = []
    for index, env in enumerate(envs):
        seed = derive_seed(cfg.run.seed, "env", index)
        shown.append(np.array(env.reset(seed)))
        env.shorten_first_episode(seed / 2**31)
    collector.start()
    ends, reached = 0, [None, None]
    for _ in range(400):
        np.testing.assert_array_equal(replay.current_obs().numpy(), np.stack(shown))
        _, action = collector.step(parts.warm_up_agent, parts.streams["act"])
        for index, env in enumerate(envs):
            step = env.step(action[index].numpy())
            reached[index] = np.array(step.obs)
            over = step.terminated or step.truncated
            shown[index] = np.array(env.reset(None)) if over else reached[index]
            ends += over
        np.testing.assert_array_equal(replay.last_next_obs().numpy(), np.stack(reached))
    assert ends >= 4, "lives are lost on the way"
    assert replay.store.first_sampleable_step > 0, "and the ring has come round"
    batch = replay.sample(0).batch
    assert batch.obs.shape == (1, 32, 4, 84, 84)
    assert batch.obs.dtype == torch.uint8
    parts.close()
