"""APS: both terms of the bonus and its loss against NumPy in float64, a case by hand, and the task regression."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from conftest import make_batch, make_spaces
from intrigue.rewards import REWARDS
from intrigue.rewards.aps import regress_task
from intrigue.rng import seeded_construction
from particles_by_numpy import Statistics, nearest, run_layers, unit

SPACES = make_spaces()
TIME, ENVS, WIDTH, K = 5, 4, 3, 6


def build(**options):
    entry = REWARDS.get("aps")
    cfg = entry.config(**{"skill_dim": WIDTH, "hidden": 16, "k": K, **options})
    with seeded_construction(0, "test"):
        return entry.cls(cfg, SPACES).double(), entry.cls.skills(cfg)


def batch_of(skills, seed, invalid=()):
    batch = make_batch(SPACES, time=TIME, envs=ENVS, seed=seed, skills=skills)
    valid = batch.valid.clone()
    for place in invalid:
        valid[place] = False
    return batch.replace(obs=batch.obs.double(), next_obs=batch.next_obs.double(), valid=valid)


def terms(reward, batch, statistics, *, count_self, clip):
    """Entropy and projection of every row, (T, N)."""
    encoded = run_layers(reward.features, batch.next_obs.numpy()).reshape(-1, WIDTH)
    valid = batch.valid.numpy().ravel()
    apart = nearest(encoded, K, count_self=count_self, valid=valid)
    if statistics is not None:
        statistics.add(apart[valid])
        apart = np.maximum(apart / statistics.mean - clip, 0)
    projection = (unit(encoded) * batch.skill.numpy().reshape(-1, WIDTH)).sum(-1)
    return np.log(1 + apart.mean(1)).reshape(TIME, ENVS), projection.reshape(TIME, ENVS)


@pytest.mark.parametrize(("variant", "count_self"), [("urlb", True), ("paper", False)])
def test_bonus_over_three_batches(variant, count_self):
    """The running mean takes in each batch before it divides it, and keeps it; rows that are none are nobody's."""
    reward, skills = build(variant=variant, clip=0.3)
    statistics = Statistics() if variant == "urlb" else None
    for seed, invalid in ((1, ()), (2, ((2, 1),)), (3, ())):
        batch = batch_of(skills, seed, invalid)
        entropy, projection = terms(reward, batch, statistics, count_self=count_self, clip=0.3)
        with torch.no_grad():
            raw, parts = reward.score_parts(batch)
            reward.observe(batch, parts)
        rows = batch.valid.numpy()
        np.testing.assert_allclose(parts["projection"].numpy()[rows], projection[rows], rtol=1e-9)
        np.testing.assert_allclose(parts["entropy"].numpy()[rows], entropy[rows], rtol=1e-9)
        np.testing.assert_allclose(raw.numpy()[rows], (entropy + projection)[rows], rtol=1e-9)


def test_loss():
    reward, skills = build()
    batch = batch_of(skills, 1)
    _, projection = terms(reward, batch, None, count_self=True, clip=0)
    np.testing.assert_allclose(float(reward.loss(batch, torch.Generator()).detach()), -projection.mean(), rtol=1e-12)


def three_points(variant):
    """φ(s') = s': (3, 4), (0, 8), (6, 0), which are 5, 5 and 10 apart; the task is (.6, .8)."""
    reward, skills = build(skill_dim=6, variant=variant, k=2)
    reward.features = torch.nn.Identity()
    batch = make_batch(SPACES, time=1, envs=3, skills=skills)
    states, task = torch.zeros(1, 3, 6, dtype=torch.float64), torch.zeros(1, 3, 6)
    states[0, :, :2] = torch.tensor([[3.0, 4.0], [0.0, 8.0], [6.0, 0.0]])
    task[..., :2] = torch.tensor([0.6, 0.8])
    return reward.score_parts(batch.replace(next_obs=states, skill=task))


def test_three_points_by_hand():
    # paper: the two others of each; urlb: itself at 0 and the nearest at 5, so the mean of all is 2.5 and 5 is worth 2.
    _, paper = three_points("paper")
    _, urlb = three_points("urlb")
    torch.testing.assert_close(paper["entropy"], torch.tensor([[6.0, 8.5, 8.5]]).double().log())
    expected = math.log(1 + (5 / (2.5 * 6 / (6 + 1e-4)) - 1e-4) / 2)
    torch.testing.assert_close(urlb["entropy"], torch.full((1, 3), expected, dtype=torch.float64), rtol=1e-12, atol=0)
    for parts in (paper, urlb):
        torch.testing.assert_close(parts["projection"], torch.tensor([[1.0, 0.8, 0.6]]).double(), rtol=1e-6, atol=0)


def test_defaults_are_those_of_urlb():
    cfg = REWARDS.get("aps").config()
    assert (cfg.variant, cfg.skill_dim, cfg.every, cfg.k, cfg.clip, cfg.hidden) == ("urlb", 10, 5, 12, 1e-4, 1024)
    assert REWARDS.get("aps").cls.skills(cfg).kind == "sphere"


def test_a_lonely_state_is_worth_most():
    reward, skills = build(k=4)
    batch = batch_of(skills, 1)
    crowd = 0.01 * batch.next_obs
    crowd[3, 2] += 4.0
    with torch.no_grad():
        entropy = reward.score_parts(batch.replace(next_obs=crowd))[1]["entropy"]
    assert int(entropy.argmax()) == 3 * ENVS + 2
    assert entropy[3, 2] > 2 * entropy.flatten().sort().values[-2]


# Task regression


def correlated(seed=0, rows=400):
    """Features of unequal sizes that lean on each other, as trained ones do."""
    rng = np.random.default_rng(seed)
    leaning = np.array([[3.0, 0.0, 0.0], [2.5, 0.5, 0.0], [0.0, 0.3, 0.2]])
    return torch.from_numpy(rng.standard_normal((rows, 3)) @ leaning.T)


def test_the_task_of_a_linear_reward_is_found():
    features, task = correlated(), torch.tensor([0.48, -0.6, 0.64], dtype=torch.float64)
    found = regress_task(features, 7 * features @ task)
    torch.testing.assert_close(found, task)
    noisy = features @ task + 0.01 * torch.randn(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert float(regress_task(features, noisy) @ task) > 0.99


def test_exchanged_arguments_find_another_task():
    """Least squares of features on rewards, as URLB has it, points along Φᵀr: another direction."""
    features, task = correlated(), torch.tensor([0.48, -0.6, 0.64], dtype=torch.float64)
    reward = features @ task
    exchanged = torch.linalg.lstsq(reward.unsqueeze(-1), features).solution[0]
    exchanged = exchanged / exchanged.norm()
    torch.testing.assert_close(exchanged, torch.nn.functional.normalize(features.mT @ reward, dim=0))
    assert float(exchanged @ task) < 0.5
    assert float(regress_task(features, reward) @ task) > 1 - 1e-9
    # Only where features are uncorrelated and of one size do both agree.
    even = torch.eye(3, dtype=torch.float64).repeat(5, 1)
    torch.testing.assert_close(
        regress_task(even, even @ task), torch.nn.functional.normalize(even.mT @ (even @ task), dim=0)
    )


def test_regression_where_features_repeat_or_rewards_are_silent():
    features = correlated()[:, :1].expand(-1, 3)  # one direction only: the shortest answer shares it evenly
    torch.testing.assert_close(
        regress_task(features, 2 * features[:, 0]), torch.full((3,), 3**-0.5, dtype=torch.float64)
    )
    assert torch.equal(regress_task(correlated(), torch.zeros(400)), torch.zeros(3, dtype=torch.float64))


def test_task_of_a_batch_uses_states_reached_and_valid_rows():
    reward, skills = build()
    batch = batch_of(skills, 1, invalid=((0, 0), (4, 3)))
    task = torch.tensor([0.6, 0.0, -0.8], dtype=torch.float64)
    with torch.no_grad():
        directions = torch.from_numpy(unit(run_layers(reward.features, batch.next_obs.numpy())))
    given = (directions @ task).masked_fill(~batch.valid, 1e6)
    torch.testing.assert_close(reward.task_from(batch.replace(reward=given)), task, rtol=1e-6, atol=1e-8)
