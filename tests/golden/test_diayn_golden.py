"""DIAYN's bonus and loss against NumPy in float64, and against a discriminator worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from conftest import make_batch, make_spaces
from intrigue.rewards import REWARDS
from intrigue.rng import seeded_construction

SPACES = make_spaces()
TIME, ENVS, SKILLS = 5, 3, 4


def build(**options):
    entry = REWARDS.get("diayn")
    cfg = entry.config(**{"skills": SKILLS, "hidden": 7, **options})
    with seeded_construction(0, "test"):
        return entry.cls(cfg, SPACES).double(), entry.cls.skills(cfg)


def batch_of(skills, seed=3):
    batch = make_batch(SPACES, time=TIME, envs=ENVS, seed=seed, skills=skills)
    return batch.replace(obs=batch.obs.double(), next_obs=batch.next_obs.double())


def by_numpy(reward, states):
    """log q(z|s) of every row and skill, with the weights read out of the module. (T, N, K)"""
    x = states.numpy()
    layers = [layer for layer in reward.discriminator if isinstance(layer, torch.nn.Linear)]
    assert [layer.out_features for layer in layers] == [7, 7, SKILLS]
    for index, layer in enumerate(layers):
        x = x @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
        x = np.maximum(x, 0) if index < 2 else x
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


@pytest.mark.parametrize(
    ("variant", "side", "prior"),
    [("paper", "next_obs", 1 / 4), ("official", "obs", 1 / 4 + 1e-6), ("urlb", "next_obs", 1 / 4)],
)
def test_bonus_and_loss(variant, side, prior):
    reward, skills = build(variant=variant)
    batch = batch_of(skills)
    log_q = by_numpy(reward, getattr(batch, side))
    which = batch.skill.argmax(-1).numpy()
    told = np.take_along_axis(log_q, which[..., None], -1)[..., 0]
    with torch.no_grad():
        raw, parts = reward.score_parts(batch)
        loss = reward.loss(batch, torch.Generator())
    np.testing.assert_allclose(raw.numpy(), told - math.log(prior), rtol=1e-12)
    np.testing.assert_array_equal(parts["accuracy"].numpy(), log_q.argmax(-1) == which)
    np.testing.assert_allclose(float(loss), -told.mean(), rtol=1e-12)


def test_a_discriminator_by_hand():
    """Told apart for certain, at random, and mistaken: log K, 0, and far below."""
    reward, skills = build(skills=6)
    reward.discriminator = torch.nn.Identity()  # the states, which are 6 numbers wide, are the logits
    batch = batch_of(skills)
    logits, skill = torch.zeros(TIME, ENVS, 6, dtype=torch.float64), torch.zeros(TIME, ENVS, 6)
    skill[..., 2] = 1
    logits[0, 0, 2] = 50.0
    logits[1, 0, 1] = math.log(5)  # five to one five times: the true skill has 1/10
    raw = reward.score(batch.replace(next_obs=logits, skill=skill))
    assert math.isclose(float(raw[0, 0]), math.log(6), rel_tol=1e-12)
    assert math.isclose(float(raw[1, 0]), math.log(6 / 10), rel_tol=1e-12)
    assert math.isclose(float(raw[2, 0]), 0.0, abs_tol=1e-12)


def test_how_long_a_skill_lasts():
    assert build(variant="urlb")[1].every == 50
    assert build(variant="urlb", every=7)[1].every == 7
    assert [build(variant=name)[1].every for name in ("paper", "official")] == [0, 0]
    cfg = REWARDS.get("diayn").config()
    assert (cfg.skills, cfg.hidden, cfg.variant) == (16, 1024, "urlb")


def test_skills_with_states_of_their_own_come_to_pay_log_k():
    """States that give the skill away are learned, states that do not stay worth nothing."""
    reward, skills = build(hidden=32)
    rng = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(reward.parameters(), lr=1e-2)
    skill = skills.draw(512, rng).unsqueeze(0)
    states = torch.randn(1, 512, 6, generator=rng, dtype=torch.float64)
    marked = states.clone()
    marked[..., :SKILLS] += 6 * skill
    batch = batch_of(skills).replace(skill=skill, reward=torch.zeros(1, 512))
    for _ in range(60):
        loss = reward.loss(batch.replace(next_obs=marked), rng)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        apart = float(reward.score(batch.replace(next_obs=marked)).mean())
        unmarked = float(reward.score(batch.replace(next_obs=states)).mean())
    assert apart > 0.95 * math.log(SKILLS)
    assert unmarked < 0.2
