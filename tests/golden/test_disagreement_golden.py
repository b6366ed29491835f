"""Disagreement against cases worked by hand and NumPy in float64, one per variant."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from intrigue.rewards import REWARDS
from intrigue.rng import seeded_construction
from intrigue.spaces import ActionSpec, ObsSpec, Spaces
from intrigue.types import Transitions

SPACES = Spaces(ObsSpec("vector", (2,)), ActionSpec("discrete", sizes=(2,)))


def make(**options):
    entry = REWARDS.get("disagreement")
    small = {"feature_dim": 2, "hidden": 4, "blocks": 1, "members": 2}
    with seeded_construction(0, "test"):
        return entry.cls(entry.config(**{**small, **options}), SPACES).double()


def random_batch(time=3, envs=2):
    rng = torch.Generator().manual_seed(1)
    lead = (time, envs)
    draw = lambda *shape: torch.randn(*lead, *shape, generator=rng, dtype=torch.float64)  # noqa: E731
    return Transitions(
        obs=draw(2),
        action=torch.eye(2, dtype=torch.float64)[torch.randint(2, lead, generator=rng)],
        reward=draw(),
        terminated=torch.zeros(lead, dtype=torch.bool),
        truncated=torch.zeros(lead, dtype=torch.bool),
        next_obs=draw(2),
        valid=torch.ones(lead, dtype=torch.bool),
        skill=torch.zeros(*lead, 0),
    )


@pytest.mark.parametrize(("variant", "expected"), [("paper", 5.0), ("official", 2.5), ("urlb", 5.0)])
def test_two_members_of_known_predictions(variant, expected):
    # Predictions (0, 0) and (2, 4), mean (1, 2): squared distances 1 and 4 in each member.
    # Population variance (1, 4): sum 5, mean 2.5. Unbiased (2, 8): mean 5.
    reward = make(variant=variant)
    with torch.no_grad():
        for weight in reward.models.ensemble.parameters():
            weight.zero_()
        reward.models.ensemble.last.bias[1, 0] = torch.tensor([2.0, 4.0])
        score = reward.score(random_batch())
    torch.testing.assert_close(score, torch.full((3, 2), expected, dtype=torch.float64))


def linear(layer, member, *inputs):
    rows = np.concatenate(inputs, -1)
    return rows @ layer.weight[member].detach().numpy() + layer.bias[member].detach().numpy()


def predictions(reward, batch):
    """Every member's prediction by NumPy, (K, T, N, D)."""
    net, action = reward.models.ensemble, batch.action.numpy()
    with torch.no_grad():
        encoded = reward.features(batch.obs).numpy()
    found = []
    for k in range(reward.cfg.members):
        if reward.cfg.variant == "urlb":
            found.append(linear(net.last, k, np.maximum(linear(net.first, k, encoded, action), 0)))
            continue
        x = linear(net.first, k, encoded, action)
        x = np.where(x > 0, x, 0.2 * x)
        for first, second in net.blocks:
            step = linear(first, k, x, action)
            x = x + linear(second, k, np.where(step > 0, step, 0.2 * step), action)
        found.append(linear(net.last, k, x, action))
    return np.stack(found)


@pytest.mark.parametrize("variant", ["paper", "official", "urlb"])
def test_score_and_loss_are_numpys(variant):
    reward, batch = make(variant=variant, members=3, keep=1.0), random_batch()
    predicted = predictions(reward, batch)
    degrees = 1 if variant == "urlb" else 0
    spread = predicted.var(0, ddof=degrees)
    expected = spread.sum(-1) if variant == "paper" else spread.mean(-1)
    with torch.no_grad():
        np.testing.assert_allclose(reward.score(batch).numpy(), expected, rtol=1e-10)
        wanted = reward.features(batch.next_obs).numpy()
        loss = float(reward.loss(batch, torch.Generator().manual_seed(0)))
    offset = predicted - wanted
    if variant == "urlb":
        assert loss == pytest.approx(np.linalg.norm(offset, axis=-1).mean(), rel=1e-10)
    else:
        assert loss == pytest.approx((offset**2).mean(-1).mean((1, 2)).sum(), rel=1e-10)


def test_urlb_reads_the_state_itself_and_begins_as_pytorch_does():
    reward = make(variant="urlb", hidden=400)
    state = random_batch().obs
    assert torch.equal(reward.features(state), state)
    first = reward.models.ensemble.first
    bound = 4**-0.5  # two numbers of the state and two classes of the action
    for values in (first.weight, first.bias):
        assert values.abs().max() <= bound
        assert values.abs().max() > 0.98 * bound
        assert abs(float(values.detach().mean())) < 0.05


def test_each_member_learns_from_its_own_share():
    reward, batch = make(keep=0.5), random_batch(time=40)
    offset = predictions(reward, batch) - reward.features(batch.next_obs).detach().numpy()
    error = (offset**2).mean(-1)  # (K, T, N)
    drawn = torch.rand(40, 2, 2, generator=torch.Generator().manual_seed(3)).numpy()  # (T, N, K)
    kept = np.moveaxis(drawn < 0.5, -1, 0)
    expected = (error * kept / 0.5).mean((1, 2)).sum()
    assert float(reward.loss(batch, torch.Generator().manual_seed(3)).detach()) == pytest.approx(expected, rel=1e-6)


def test_a_random_outcome_is_agreed_on():
    # One state and action, two outcomes: every member learns their mean, so the bonus goes although the error stays.
    reward = make(members=3, keep=1.0, encoder="random")
    batch = random_batch(time=1, envs=2)
    same = batch.replace(obs=batch.obs[:, :1].expand(1, 2, 2), action=batch.action[:, :1].expand(1, 2, 2))
    optimizer = torch.optim.Adam([each for each in reward.parameters() if each.requires_grad], lr=1e-2)
    with torch.no_grad():
        before = float(reward.score(same).mean())
    for _ in range(300):
        loss = reward.loss(same, torch.Generator())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        assert float(reward.score(same).mean()) < 1e-3 * before
        assert float(loss) > 0.01


def test_one_member_is_refused():
    from conftest import GYM_ACTIONS, GYM_OBS
    from intrigue import Curiosity
    from intrigue.errors import ConfigError

    with pytest.raises(ConfigError, match="members"):
        Curiosity("disagreement", GYM_OBS["vector"], GYM_ACTIONS["discrete"], members=1)
