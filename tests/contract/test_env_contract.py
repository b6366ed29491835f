"""What every registered environment keeps to. A new family is picked up through its registration and `Env.examples`."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from intrigue.envs.make import make_env
from intrigue.envs.pool.config import PoolConfig
from intrigue.envs.pool.pool import Pool, make_pool
from intrigue.envs.registry import ENVS, split_id
from intrigue.errors import ConfigError, SnapshotUnsupported
from intrigue.seeding import SEED_LIMIT, derive_seed
from intrigue.spaces import ActionSpec, Array, make_spaces
from intrigue.state import from_bytes, to_bytes

ENV_IDS = [f"{family}/{name}".rstrip("/") for family in ENVS.names() for name in ENVS.get(family).cls.examples]
ONE_PER_FAMILY = [next(each for each in ENV_IDS if split_id(each)[0] == family) for family in ENVS.names()]
SAVED = [env_id for env_id in ENV_IDS if make_env(env_id, {}).info.can_snapshot]
UNSAVED = [env_id for env_id in ENV_IDS if env_id not in SAVED]
SHORT_EPISODE = 7  # Steps, so that a short trace crosses many resets.


def short_options(env_id: str) -> dict[str, Any]:
    """Options that make episodes short, where the family has a limit to set."""
    fields = {each.name for each in dataclasses.fields(ENVS.get(split_id(env_id)[0]).config)}
    return {name: SHORT_EPISODE for name in ("max_steps", "max_episode_steps") if name in fields}


def random_actions(spec: ActionSpec, steps: int, num_envs: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    lead = (steps, num_envs)
    if spec.kind == "continuous":
        low, high = np.clip(spec.low, -3, 3), np.clip(spec.high, -3, 3)
        return rng.uniform(low, high, size=(*lead, len(spec.low))).astype(np.float32)
    parts = np.stack([rng.integers(0, size, size=lead) for size in spec.sizes], axis=-1)
    return parts[..., 0] if spec.kind == "discrete" else parts


def trace(pool: Pool, actions: Array, first: Array) -> list[Array]:
    """Everything the pool gives over these actions, copied."""
    seen = [first.copy()]
    for action in actions:
        seen.extend(np.array(each) for each in pool.step(action))
    return seen


def fresh_trace(
    env_id: str, seed: int, workers: int = 0, num_envs: int = 3, steps: int = 30, groups: int = 1
) -> list[Array]:
    cfg = PoolConfig(num_envs=num_envs, workers=workers, groups=groups)
    pool = make_pool(env_id, short_options(env_id), cfg, seed)
    try:
        return trace(pool, random_actions(pool.spaces.action, steps, num_envs, 5), pool.reset())
    finally:
        pool.close()


def moved(pool: Pool, obs: Array) -> Array:
    """What the pool gives of one observation: the newest of stacked frames."""
    return obs[-1] if pool.stack else obs


def assert_equal(left: list[Array], right: list[Array]) -> None:
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_gives_what_it_declares(env_id: str) -> None:
    env = make_env(env_id, {})
    spaces = make_spaces(env.info.obs_space, env.info.action_space)
    obs = env.reset(3)
    for action in random_actions(spaces.action, 300, 1, 0)[:, 0]:
        assert obs.shape == spaces.obs.shape
        assert obs.dtype == spaces.obs.dtype
        assert np.isfinite(obs).all()
        obs, reward, terminated, truncated, place = env.step(action)
        assert np.isfinite(float(reward))
        assert -1 <= place < env.info.places or place == -1
        if terminated or truncated:
            obs = env.reset(None)
    assert env.info.frames_per_step >= 1
    env.close()


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_a_wrong_option_is_refused_with_its_name(env_id: str) -> None:
    with pytest.raises(ConfigError, match="no_such_option"):
        make_env(env_id, {"no_such_option": 1})


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_the_same_seed_gives_the_same_trace(env_id: str) -> None:
    assert_equal(fresh_trace(env_id, seed=4), fresh_trace(env_id, seed=4))


@pytest.mark.parametrize("env_id", [each for each in ENV_IDS if split_id(each)[0] in ("gym", "noisy-tv")])
def test_another_seed_gives_another_trace(env_id: str) -> None:
    left, right = fresh_trace(env_id, seed=4), fresh_trace(env_id, seed=5)
    assert any(not np.array_equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_next_obs_is_the_true_successor_across_resets(env_id: str) -> None:
    options, seed, num_envs = short_options(env_id), 2, 3
    pool = make_pool(env_id, options, PoolConfig(num_envs=num_envs, workers=0), seed)
    lone = [make_env(env_id, options) for _ in range(num_envs)]
    firsts = [env.reset(derive_seed(seed, "env", index)) for index, env in enumerate(lone)]
    expected = np.stack([moved(pool, obs) for obs in firsts])
    for index, env in enumerate(lone):
        env.shorten_first_episode(
            derive_seed(seed, "env", index) / SEED_LIMIT
        )  # as the pool does, so that episodes do not end together
    np.testing.assert_array_equal(pool.reset(), expected)
    ends = 0
    for action in random_actions(pool.spaces.action, 40, num_envs, 1):
        step = pool.step(action)
        for index, env in enumerate(lone):
            obs, reward, terminated, truncated, place = env.step(action[index])
            np.testing.assert_array_equal(step.next_obs[index], moved(pool, obs))
            got = (step.reward[index], step.terminated[index], step.truncated[index], step.place[index])
            assert got == (reward, terminated, truncated, place)
            if terminated or truncated:
                ends += 1
                obs = env.reset(None)
            np.testing.assert_array_equal(step.obs[index], moved(pool, obs))
        assert step.valid.all()
    assert ends >= num_envs
    pool.close()


@pytest.mark.parametrize("env_id", SAVED)
def test_a_restored_pool_goes_on_exactly(env_id: str) -> None:
    cfg = PoolConfig(num_envs=3, workers=0)
    pool = make_pool(env_id, short_options(env_id), cfg, seed=1)
    actions = random_actions(pool.spaces.action, 233, 3, 2)
    trace(pool, actions[:33], pool.reset())
    saved = from_bytes(to_bytes(pool.snapshot()))
    expected = trace(pool, actions[33:], np.array(saved["obs"]))
    other = make_pool(env_id, short_options(env_id), cfg, seed=99)
    assert_equal(trace(other, actions[33:], other.restore(saved)), expected)
    assert other.restarted == 0
    assert any(each.dtype == bool and each.any() for each in expected), "the trace must cross an end"


@pytest.mark.parametrize("env_id", UNSAVED)
def test_an_environment_that_cannot_be_saved_says_so(env_id: str) -> None:
    env = make_env(env_id, {})
    env.reset(0)
    with pytest.raises(SnapshotUnsupported):
        env.snapshot()


@pytest.mark.parametrize("env_id", UNSAVED)
def test_a_pool_that_cannot_be_saved_starts_anew_and_says_so(env_id: str) -> None:
    cfg = PoolConfig(num_envs=2, workers=0)
    pool = make_pool(env_id, {}, cfg, seed=1)
    first = pool.reset().copy()
    saved = from_bytes(to_bytes(pool.snapshot()))
    again = [make_pool(env_id, {}, cfg, seed=1) for _ in range(2)]
    restored = [each.restore(saved).copy() for each in again]
    np.testing.assert_array_equal(restored[0], restored[1])
    assert [each.restarted for each in again] == [2, 2]
    expected = moved(pool, make_env(env_id, {}).reset(derive_seed(1, "restart", 1, 1)))
    np.testing.assert_array_equal(restored[0][1], expected)
    later = make_pool(env_id, {}, cfg, seed=1)
    later.restore(again[0].snapshot())
    assert later.snapshot()["restarts"] == 2
    assert first.shape == restored[0].shape


@pytest.mark.parametrize("layouts", [((0, 2), (2, 2)), pytest.param(((2, 1), (3, 1)), marks=pytest.mark.slow)])
@pytest.mark.parametrize("env_id", ONE_PER_FAMILY)
def test_the_number_of_workers_and_groups_changes_nothing(env_id: str, layouts: tuple[tuple[int, int], ...]) -> None:
    expected = fresh_trace(env_id, seed=6, workers=0, num_envs=5)
    for workers, groups in layouts:
        assert_equal(fresh_trace(env_id, seed=6, workers=workers, num_envs=5, groups=groups), expected)


@pytest.mark.parametrize("env_id", [each for each in ENV_IDS if make_env(each, {}).info.stack])
def test_stacked_frames_move_on_by_one_and_begin_alike(env_id: str) -> None:
    env = make_env(env_id, short_options(env_id))
    spaces = make_spaces(env.info.obs_space, env.info.action_space)
    obs, begins = env.reset(3).copy(), True
    for action in random_actions(spaces.action, 30, 1, 0)[:, 0]:
        assert len(obs) == env.info.stack
        if begins:
            np.testing.assert_array_equal(obs, np.broadcast_to(obs[-1], obs.shape))
        step = env.step(action)
        np.testing.assert_array_equal(step.obs[:-1], obs[1:])
        begins = step.terminated or step.truncated
        obs = (env.reset(None) if begins else step.obs).copy()
