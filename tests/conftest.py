"""Batches, spaces and tiny configurations that tests share."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from intrigue.ops.precision import set_matmul_dtype
from intrigue.skills import SkillSpec
from intrigue.spaces import ActionSpec, ObsSpec, Spaces
from intrigue.types import Transitions

OBS = {
    "vector": ObsSpec("vector", (6,)),
    "pixels": ObsSpec("pixels", (2, 36, 36)),
}
ACTIONS = {
    "discrete": ActionSpec("discrete", sizes=(3,)),
    "multi-discrete": ActionSpec("multi-discrete", sizes=(3, 2)),
    "continuous": ActionSpec("continuous", low=(-1.0, -2.0), high=(1.0, 2.0)),
}
GYM_OBS = {
    "vector": gym.spaces.Box(-np.inf, np.inf, (6,), np.float32),
    "pixels": gym.spaces.Box(0, 255, (36, 36, 2), np.uint8),
    "dict": gym.spaces.Dict({"place": gym.spaces.Box(-1, 1, (3,), np.float32), "key": gym.spaces.Discrete(4)}),
}
GYM_ACTIONS = {
    "discrete": gym.spaces.Discrete(3),
    "multi-discrete": gym.spaces.MultiDiscrete([3, 2]),
    "multi-binary": gym.spaces.MultiBinary(3),
    "continuous": gym.spaces.Box(-1.0, 1.0, (2,), np.float32),
}


@pytest.fixture
def bfloat16(_float32):
    """Wide products in it while learning."""
    set_matmul_dtype("bfloat16")


@pytest.fixture(autouse=True)
def _float32():
    """What a run multiplies in holds for its process; the next test must not inherit it."""
    set_matmul_dtype("float32")


@pytest.fixture(autouse=True)
def _one_thread():
    """Tests measure behaviour, not threads; one thread also keeps parallel test processes apart."""
    torch.set_num_threads(1)


def make_spaces(obs: str = "vector", action: str = "discrete") -> Spaces:
    """Encoded spaces by kind."""
    return Spaces(OBS[obs], ACTIONS[action])


def make_obs(spec: ObsSpec, lead: tuple[int, ...], rng: torch.Generator) -> torch.Tensor:
    """Random observations of a spec."""
    if spec.kind == "pixels":
        return torch.randint(0, 256, (*lead, *spec.shape), generator=rng, dtype=torch.uint8)
    return torch.randn(*lead, *spec.shape, generator=rng)


def make_batch(
    spaces: Spaces, time: int = 6, envs: int = 4, seed: int = 0, skills: SkillSpec | None = None
) -> Transitions:
    """A random batch as a collector would give it, with an end of each kind in it when there is room."""
    rng = torch.Generator().manual_seed(seed)
    lead = (time, envs)
    if spaces.action.kind == "continuous":
        action = torch.rand(*lead, *spaces.action.shape, generator=rng) * 2 - 1
    else:
        parts = [torch.randint(size, lead, generator=rng) for size in spaces.action.sizes]
        action = parts[0] if spaces.action.kind == "discrete" else torch.stack(parts, -1)
    terminated, truncated = torch.zeros(lead, dtype=torch.bool), torch.zeros(lead, dtype=torch.bool)
    if time > 3 and envs > 1:
        terminated[1, 0], truncated[2, 1] = True, True
    return Transitions(
        obs=make_obs(spaces.obs, lead, rng),
        action=action,
        reward=torch.randn(*lead, generator=rng),
        terminated=terminated,
        truncated=truncated,
        next_obs=make_obs(spaces.obs, lead, rng),
        valid=torch.ones(lead, dtype=torch.bool),
        skill=skills.draw(time * envs, rng).unflatten(0, lead) if skills else torch.zeros(*lead, 0),
    )


def same_state(first: object, second: object) -> bool:
    """Whether two state trees are equal to the bit."""
    from intrigue.state import split

    (skeleton, arrays), (other_skeleton, other_arrays) = split(first), split(second)
    if skeleton != other_skeleton or set(arrays) != set(other_arrays):
        return False
    for name, array in arrays.items():
        one, two = (torch.as_tensor(each[name]) for each in (arrays, other_arrays))
        if one.dtype != two.dtype or not torch.equal(one.nan_to_num(7.5), two.nan_to_num(7.5)):
            return False
        del array
    return True


# Small enough that a run of a thousand steps takes well under a second.
TINY = {
    "env": "rooms",
    "env.rooms": 2,
    "env.room_size": 3,
    "env.max_steps": 40,
    "pool.num_envs": 4,
    "pool.workers": 0,
    "agent.rollout_steps": 16,
    "agent.hidden": 8,
    "reward.feature_dim": 8,
    "reward.hidden": 8,
    "reward.blocks": 0,
    "threads": 1,
    "device": "cpu",
    "steps": 640,
    "checkpoint_every": 200,
}
