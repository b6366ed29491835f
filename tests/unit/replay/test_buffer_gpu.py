"""ReplayBuffer and DQN with a GPU: wherever rows are kept, the same ones are drawn, saved and learned from."""

from __future__ import annotations

import pytest
import torch

from conftest import same_state
from intrigue.config.run import resolve
from intrigue.replay.buffer import ReplayBuffer
from intrigue.run import checkpoint
from intrigue.training.build import build
from intrigue.training.loops import loop
from replay_runs import World, plan_of

pytestmark = pytest.mark.gpu

LAYER = {
    "env": "chain",
    "env.length": 8,
    "agent": "dqn",
    "agent.capacity": 400,
    "agent.batch": 16,
    "agent.learning_starts": 40,
    "agent.hidden": 16,
    "agent.n_step": 2,
    "reward": "rnd",
    "reward.feature_dim": 8,
    "reward.hidden": 8,
    "pool.num_envs": 4,
    "pool.workers": 0,
    "device": "cuda",
}


@pytest.mark.parametrize("changes", [{}, {"priority": 0.6}, {"order": "episodes"}, {"window": "tuple", "steps": 3}])
def test_the_same_is_drawn_from_the_device_and_from_the_host(changes):
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    batches = []
    for storage_device in (cuda, cpu):
        world = World(3, 3, seed=1)
        replay = ReplayBuffer(
            plan_of(**changes), world.spaces, 3, stack=3, seed=0, device=cuda, storage_device=storage_device
        )
        replay.reset(world.frames())
        drawn = []
        for _ in range(150):
            world.step(replay)
            if len(replay):
                sample = replay.sample(0)
                replay.update_priorities(sample, torch.linspace(0.1, 2, 64, device=cuda))
                drawn.append(sample.batch)
        assert drawn[-1].obs.device.type == "cuda"
        batches.append(drawn)
    for one, two in zip(*batches, strict=True):
        assert torch.equal(one.obs, two.obs)
        assert torch.equal(one.next_obs, two.next_obs)
        assert torch.equal(one.reward, two.reward)


@pytest.mark.parametrize("changes", [{"agent.replay_place": "device"}, {"agent.replay_place": "host"},
                                     {"agent.priority": 0.6}])  # fmt: skip
def test_a_run_on_the_gpu_learns_saves_and_goes_on(tmp_path, changes):
    cfg = resolve({**LAYER, **changes})
    first, second = build(cfg), build(cfg)
    first.collector.start()
    for progress in loop(first, 0):
        if progress.step >= 1200:
            break
    wanted = "cpu" if changes.get("agent.replay_place") == "host" else "cuda"
    assert first.collector.replay.store.ring.device.type == wanted
    checkpoint.save(tmp_path, 1, first.state_dict(), config_digest="", meta={}, keep=1)
    second.load_state_dict(checkpoint.load(tmp_path, on_skip=pytest.fail).state)
    assert same_state(first.collector.state_dict(), second.collector.state_dict())
    for parts in (first, second):
        for progress in loop(parts, 0):
            if progress.step >= 1400:
                break
        parts.close()
    assert first.collector.step_count == second.collector.step_count == 1400
