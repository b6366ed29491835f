"""CIC: the contrastive loss and the bonus of both variants against NumPy in float64 and cases by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from conftest import make_batch, make_spaces
from intrigue.rewards import REWARDS
from intrigue.rng import seeded_construction
from particles_by_numpy import Statistics, nearest, run_layers, unit

SPACES = make_spaces()
TIME, ENVS, WIDTH, K = 5, 4, 3, 6


def build(**options):
    entry = REWARDS.get("cic")
    cfg = entry.config(**{"skill_dim": WIDTH, "hidden": 16, "k": K, **options})
    with seeded_construction(0, "test"):
        return entry.cls(cfg, SPACES).double(), entry.cls.skills(cfg)


def batch_of(skills, seed, invalid=()):
    batch = make_batch(SPACES, time=TIME, envs=ENVS, seed=seed, skills=skills)
    valid = batch.valid.clone()
    for place in invalid:
        valid[place] = False
    return batch.replace(obs=batch.obs.double(), next_obs=batch.next_obs.double(), valid=valid)


def transitions(reward, batch):
    """g(s, s'), (B, D)."""
    both = [run_layers(reward.state_net, each.numpy()) for each in (batch.obs, batch.next_obs)]
    return run_layers(reward.transition_net, np.concatenate(both, -1)).reshape(-1, WIDTH)


def test_official_bonus_over_three_batches():
    """Entropy of f(s'), the state counting itself, distances over their running variance."""
    reward, skills = build(variant="official", clip=0.3)
    statistics = Statistics()
    for seed, invalid in ((1, ()), (2, ((2, 1),)), (3, ())):
        batch = batch_of(skills, seed, invalid)
        encoded = run_layers(reward.state_net, batch.next_obs.numpy()).reshape(-1, WIDTH)
        rows = batch.valid.numpy()
        apart = nearest(encoded, K, count_self=True, valid=rows.ravel())
        statistics.add(apart[rows.ravel()])
        expected = np.log(1 + np.maximum(apart / statistics.var - 0.3, 0).mean(1)).reshape(TIME, ENVS)
        with torch.no_grad():
            raw, parts = reward.score_parts(batch)
            reward.observe(batch, parts)
        np.testing.assert_allclose(raw.numpy()[rows], expected[rows], rtol=1e-9)


def test_paper_bonus():
    """Entropy of transitions, the state not counting itself, distances as they are, nothing kept between batches."""
    reward, skills = build(variant="paper")
    for seed in (1, 2):
        batch = batch_of(skills, seed, invalid=((1, 3),))
        rows = batch.valid.numpy()
        apart = nearest(transitions(reward, batch), K, count_self=False, valid=rows.ravel())
        with torch.no_grad():
            raw, parts = reward.score_parts(batch)
            reward.observe(batch, parts)
        expected = np.log(1 + apart.mean(1)).reshape(TIME, ENVS)
        np.testing.assert_allclose(raw.numpy()[rows], expected[rows], rtol=1e-9)


@pytest.mark.parametrize("variant", ["paper", "official"])
@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_loss(variant, temperature):
    """Each skill against the transitions of all rows; the other way round would be another number."""
    reward, skills = build(variant=variant, temperature=temperature)
    batch = batch_of(skills, 1)
    key = unit(transitions(reward, batch))
    query = unit(run_layers(reward.skill_net, batch.skill.double().numpy()).reshape(-1, WIDTH))
    losses, turned = [], []
    for i in range(TIME * ENVS):
        for store, row in ((losses, query[i] @ key.T), (turned, key[i] @ query.T)):
            total = sum(math.exp(cosine / temperature) for cosine in row)
            if variant == "official":
                total = max(total - math.exp(1 / temperature), 1e-6) + 1e-6
            store.append(math.log(total) - row[i] / temperature)
    loss = float(reward.loss(batch, torch.Generator()).detach())
    assert math.isclose(loss, np.mean(losses), rel_tol=1e-9)
    assert not math.isclose(loss, np.mean(turned), rel_tol=1e-5)


class Given(torch.nn.Module):
    """A network that answers with what it was told to."""

    def __init__(self, rows):
        super().__init__()
        self.register_buffer("rows", torch.tensor(rows, dtype=torch.float64))

    def forward(self, seen):
        return self.rows.unsqueeze(0)


@pytest.mark.parametrize(
    ("queries", "keys", "paper", "official"),
    [
        # Told apart: cosines 1 on the diagonal, 0 elsewhere. e² + 1 in the sum, of which e² is the positive.
        ([[1, 0, 0], [0, 2, 0]], [[3, 0, 0], [0, 1, 0]], math.log(math.exp(2) + 1) - 2, math.log(1 + 1e-6) - 2),
        # All alike: cosines 1.
        ([[1, 0, 0], [1, 0, 0]], [[3, 0, 0], [1, 0, 0]], math.log(2), math.log(math.exp(2) + 1e-6) - 2),
        # Mistaken: 0 on the diagonal, 1 elsewhere. The official code takes off e² where the positive was e⁰.
        ([[1, 0, 0], [0, 1, 0]], [[0, 1, 0], [1, 0, 0]], math.log(math.exp(2) + 1), math.log(1 + 1e-6)),
        # Opposite: −1 everywhere. 2e⁻² less e² is below nothing, and clamped.
        ([[1, 0, 0], [1, 0, 0]], [[-1, 0, 0], [-1, 0, 0]], math.log(2), math.log(2e-6) + 2),
    ],
)
def test_loss_by_hand(queries, keys, paper, official):
    for variant, expected in (("paper", paper), ("official", official)):
        reward, skills = build(variant=variant)
        reward.skill_net, reward.transition_net = Given(queries), Given(keys)
        batch = make_batch(SPACES, time=1, envs=2, skills=skills)
        batch = batch.replace(obs=batch.obs.double(), next_obs=batch.next_obs.double())
        assert math.isclose(float(reward.loss(batch, torch.Generator())), expected, rel_tol=1e-9)


def test_defaults_are_those_of_the_official_code():
    cfg = REWARDS.get("cic").config()
    assert (cfg.variant, cfg.skill_dim, cfg.every, cfg.temperature) == ("official", 64, 50, 0.5)
    assert (cfg.k, cfg.clip, cfg.hidden) == (16, 5e-4, 1024)
    assert REWARDS.get("cic").cls.skills(cfg).kind == "uniform"


@pytest.mark.parametrize("variant", ["paper", "official"])
def test_a_lonely_state_is_worth_most(variant):
    reward, skills = build(variant=variant, k=4)
    batch = batch_of(skills, 1)
    crowd = 0.01 * batch.next_obs
    crowd[3, 2] += 4.0
    with torch.no_grad():
        raw = reward.score(batch.replace(obs=0.01 * batch.obs, next_obs=crowd))
    assert int(raw.argmax()) == 3 * ENVS + 2
    assert raw[3, 2] > 2 * raw.flatten().sort().values[-2]


def test_the_skill_comes_to_be_told_from_transitions():
    """Transitions that move by the skill: after learning, each skill is nearest to its own transition."""
    reward, skills = build(variant="paper", hidden=32, skill_dim=6)
    rng = torch.Generator().manual_seed(0)
    skill = skills.draw(64, rng).unsqueeze(0)
    obs = torch.randn(1, 64, 6, generator=rng, dtype=torch.float64)
    batch = batch_of(skills, 1).replace(
        obs=obs, next_obs=obs + 3 * (skill - 0.5), skill=skill, reward=torch.zeros(1, 64)
    )
    optimizer = torch.optim.Adam(reward.parameters(), lr=3e-3)
    before = float(reward.loss(batch, rng).detach())
    for _ in range(150):
        loss = reward.loss(batch, rng)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert math.isclose(before, math.log(64), rel_tol=0.1), "at first a guess among 64"
    assert float(loss.detach()) < before - 1.0
