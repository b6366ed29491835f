"""State marginal matching against float64 NumPy written from the formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from intrigue.rewards import REWARDS
from intrigue.rng import seeded_construction
from intrigue.spaces import ActionSpec, ObsSpec, Spaces
from intrigue.types import Transitions

SPACES = Spaces(ObsSpec("vector", (3,)), ActionSpec("discrete", sizes=(2,)))
SKILLS = 3


def build(variant="urlb", **options):
    entry = REWARDS.get("smm")
    small = {"skills": SKILLS, "density_hidden": 5, "code": 2, "hidden": 6}
    with seeded_construction(1, "test"):
        reward = entry.cls(entry.config(variant=variant, **{**small, **options}), SPACES)
        for weight in reward.parameters():  # biases too, which start at 0
            torch.nn.init.normal_(weight, std=0.5)
    return reward.double()


def batch(seed, time=4, envs=2):
    rng = np.random.default_rng(seed)
    flags = torch.zeros(time, envs, dtype=torch.bool)
    return Transitions(
        obs=torch.from_numpy(rng.normal(size=(time, envs, 3))),
        action=torch.zeros(time, envs, 2),
        reward=torch.zeros(time, envs),
        terminated=flags,
        truncated=flags,
        next_obs=torch.full((time, envs, 3), torch.nan),  # not looked at
        valid=~flags,
        skill=torch.from_numpy(np.eye(SKILLS, dtype=np.float32)[rng.integers(SKILLS, size=(time, envs))]),
    )


def layers(rows, module):
    """ReLU layers; the last one without."""
    weights = [weight.detach().numpy() for weight in module.parameters()]
    for index in range(0, len(weights), 2):
        rows = rows @ weights[index].T + weights[index + 1]
        rows = np.maximum(rows, 0) if index + 2 < len(weights) else rows
    return rows


def by_hand(reward, rows, normal):
    """Squared errors (B, D) of the autoencoder, its mean and log-variance, and the discriminator's error (B,)."""
    state, skill = rows.obs.flatten(0, 1).numpy(), rows.skill.flatten(0, 1).double().numpy()
    known = np.concatenate([state, skill], 1)
    coded = layers(known, reward.encoder)
    mean, log_var = coded[:, :2], coded[:, 2:]
    error = np.square(known - layers(mean + np.exp(0.5 * log_var) * normal, reward.decoder))
    logits = layers(state, reward.discriminator)
    right = logits[np.arange(len(logits)), skill.argmax(1)]
    return error, mean, log_var, np.log(np.exp(logits).sum(1)) - right


@pytest.mark.parametrize(("variant", "sign"), [("paper", -1), ("urlb", 1)])
def test_bonus_adds_what_is_seldom_and_what_tells_the_skill(variant, sign):
    reward = build(variant)
    for seed in (1, 2):
        rows = batch(seed)
        score, parts = reward.score_parts(rows)
        error, _, _, doubt = by_hand(reward, rows, reward.draws.normal(2).numpy())
        wanted = error.sum(1) + math.log(3) + sign * doubt
        np.testing.assert_allclose(score.detach().flatten().numpy(), wanted, rtol=1e-9)
        np.testing.assert_allclose(parts["state_entropy"].detach().flatten().numpy(), error.sum(1), rtol=1e-9)
        np.testing.assert_allclose(parts["skill_entropy"].detach().flatten().numpy(), doubt, rtol=1e-9)
        before = reward.draws.normal(2)
        reward.observe(rows, parts)
        assert not torch.equal(reward.draws.normal(2), before)


def test_loss_is_divergence_error_and_cross_entropy():
    reward, rows = build(beta=0.7), batch(3)
    normal = torch.randn(4, 2, 2, generator=torch.Generator().manual_seed(5)).double().flatten(0, 1).numpy()
    error, mean, log_var, doubt = by_hand(reward, rows, normal)
    divergence = -0.5 * (1 + log_var - mean**2 - np.exp(log_var)).sum(1).mean()
    loss = float(reward.loss(rows, torch.Generator().manual_seed(5)).detach())
    assert math.isclose(loss, 0.7 * divergence + error.mean() + doubt.mean(), rel_tol=1e-7)


def test_what_was_learned_pays_less_than_what_was_not():
    """Skill 0 learns one place; the other side of the origin, at a squared distance of 21, is then worth more."""
    entry = REWARDS.get("smm")
    with seeded_construction(0, "test"):
        reward = entry.cls(entry.config(skills=SKILLS, density_hidden=32, code=8, hidden=16), SPACES)
    place, skill = torch.tensor([2.0, -1.0, 0.5]), torch.eye(SKILLS)[0]
    seen = batch(0).replace(obs=place.expand(4, 2, 3), skill=skill.expand(4, 2, SKILLS))
    new = seen.replace(obs=-place.expand(4, 2, 3))
    optimizer = torch.optim.Adam(reward.parameters(), lr=2e-2)
    for step in range(100):
        optimizer.zero_grad()
        reward.loss(seen, torch.Generator().manual_seed(step)).backward()
        optimizer.step()
    with torch.no_grad():
        known, unknown = (float(reward.score_parts(each)[1]["state_entropy"].mean()) for each in (seen, new))
    assert known < 0.5 and unknown > 15


def test_pixels_go_through_convolutions_that_are_not_trained():
    entry = REWARDS.get("smm")
    spaces = Spaces(ObsSpec("pixels", (2, 36, 36)), SPACES.action)
    reward = entry.cls(entry.config(), spaces)
    assert not any(weight.requires_grad for weight in reward.trunk.parameters())
    assert sum(weight.numel() for weight in reward.trunk.parameters())
    assert reward.encoder[0][0].weight.shape == (150, 512 + 4)


def test_defaults_are_the_benchmarks():
    entry = REWARDS.get("smm")
    reward = entry.cls(entry.config(), SPACES)
    spec = entry.cls.skills(entry.config())
    assert (spec.kind, spec.width, spec.every) == ("one-hot", 4, 0)
    shapes = [tuple(weight.shape) for weight in reward.encoder.parameters() if weight.dim() == 2]
    assert shapes == [(150, 7), (150, 150), (256, 150)]
    for head in reward.encoder[2].weight.detach().chunk(2):
        torch.testing.assert_close(head @ head.T, torch.eye(128), atol=1e-5, rtol=0)
    shapes = [tuple(weight.shape) for weight in reward.decoder.parameters() if weight.dim() == 2]
    assert shapes == [(150, 128), (150, 150), (7, 150)]
    shapes = [tuple(weight.shape) for weight in reward.discriminator.parameters() if weight.dim() == 2]
    assert shapes == [(1024, 3), (1024, 1024), (4, 1024)]
