"""NNM over neighbours and APT in URLB's setting, from replay to the agent's reward, against float64 NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from intrigue.config.run import resolve
from intrigue.curiosity.curiosity import Curiosity
from intrigue.presets import preset_layer
from intrigue.spaces import ActionSpec, ObsSpec, Spaces
from intrigue.types import Transitions

SPACES = Spaces(ObsSpec("vector", (5,)), ActionSpec("continuous", low=(-1.0, -1.0), high=(1.0, 1.0)))
ROWS, WIDTH = 40, 6


def curiosity(preset, **changes):
    """The bonus of a preset as a run builds it, small, with gains and biases of its own."""
    cfg = resolve(preset_layer(preset), {"reward.feature_dim": WIDTH, "reward.hidden": 7, **changes})
    made = Curiosity.from_config(
        cfg.reward_name, cfg.reward_options, cfg.curiosity, SPACES, device="cpu", seed=1
    )  # fmt: skip
    rng = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in made.reward.parameters():
            weight.add_(0.5 * torch.randn(weight.shape, generator=rng))
    return made


def sampled(seed=0):
    """A batch as the replay hands it over, (1, B)."""
    rng = np.random.default_rng(seed)
    draw = lambda *shape: torch.from_numpy(rng.normal(size=(1, ROWS, *shape)).astype(np.float32))  # noqa: E731
    flags = torch.zeros(1, ROWS, dtype=torch.bool)
    return Transitions(
        obs=draw(5) * 3 + 1,
        action=draw(2).tanh(),
        reward=draw() * 100,  # the task's, which must not show
        terminated=flags,
        truncated=flags,
        next_obs=draw(5) * 3 + 1,
        valid=~flags,
        skill=torch.zeros(1, ROWS, 0),
    )


def arrays(module):
    return [weight.detach().double().numpy() for weight in module.parameters()]


def trunk(state, weights):
    """One layer, LayerNorm, tanh."""
    weight, bias, gain, shift = weights
    wide = state @ weight.T + bias
    wide = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    return np.tanh(wide * gain + shift)


def mlp(x, weights):
    w1, b1, w2, b2 = weights
    return np.maximum(x @ w1.T + b1, 0) @ w2.T + b2


def neighbours(encoded, count):
    """Each state's rows: itself, then its nearest, `count` in all."""
    table = np.linalg.norm(encoded[:, None] - encoded[None], axis=-1)
    np.fill_diagonal(table, -1.0)  # itself first
    return np.argsort(table, axis=1)[:, :count], np.sort(np.maximum(table, 0), axis=1)[:, :count]


def nuclear(rows, form):
    if form == "centered":
        return np.linalg.svd(rows - rows[0], compute_uv=False).sum() / math.sqrt(WIDTH)
    ratio = np.linalg.svd(rows, compute_uv=False).sum() / np.linalg.norm(rows)
    return ratio / math.sqrt(max(rows.shape))


@pytest.mark.parametrize(("preset", "form"), [("nnm-urlb", "ratio"), ("nnmc-urlb", "centered")])
def test_nnm_of_a_sample(preset, form):
    """Twelve rows, the state left and its eleven nearest; the reward handed on is the bonus, unscaled."""
    made, batch = curiosity(preset), sampled()
    encoded = trunk(batch.obs[0].double().numpy(), arrays(made.reward.features.encoder))
    index, _ = neighbours(encoded, 12)
    wanted = np.array([nuclear(encoded[rows], form) for rows in index])
    step = made.step_batch(batch)
    np.testing.assert_allclose(step.intrinsic[0].double().numpy(), wanted, rtol=1e-4, atol=1e-5)
    assert torch.equal(step.streams[0].reward, step.intrinsic) and step.streams[0].weight == 1.0
    assert wanted.std() > 1e-3, "the case must tell states apart"


def test_apt_of_a_sample():
    made, batch = curiosity("apt-urlb"), sampled()
    encoded = trunk(batch.obs[0].double().numpy(), arrays(made.reward.features))
    _, near = neighbours(encoded, 12)
    step = made.step_batch(batch)
    np.testing.assert_allclose(step.intrinsic[0].double().numpy(), np.log1p(near.mean(1)), rtol=1e-4)
    assert torch.equal(step.streams[0].reward, step.intrinsic)


def test_nnm_over_states_has_no_encoder():
    made, batch = curiosity("nnm-state-urlb"), sampled()
    states = batch.obs[0].double().numpy()
    states = (states - states.mean(-1, keepdims=True)) / np.sqrt(states.var(-1, keepdims=True) + 1e-5)
    index, _ = neighbours(states, 12)
    wanted = [np.linalg.svd(states[r], compute_uv=False).sum() / np.linalg.norm(states[r]) / 12**0.5 for r in index]
    np.testing.assert_allclose(made.step_batch(batch).intrinsic[0].double().numpy(), wanted, rtol=1e-4)
    assert not list(made.reward.parameters())


def expected_loss(batch, encoder, dynamics):
    obs, there, action = (each[0].double().numpy() for each in (batch.obs, batch.next_obs, batch.action))
    here, there = trunk(obs, arrays(encoder)), trunk(there, arrays(encoder))
    ahead = mlp(np.concatenate([here, action], 1), arrays(dynamics.ahead))
    guess = np.tanh(mlp(np.concatenate([here, there], 1), arrays(dynamics.back)))
    return np.linalg.norm(there - ahead, axis=1).mean() + np.linalg.norm(action - guess, axis=1).mean()


def test_nnm_and_apt_train_one_and_the_same_trunk():
    """Equal weights, equal losses, equal steps: what differs between the two is the bonus alone."""
    nnm, apt, batch = curiosity("nnm-urlb"), curiosity("apt-urlb"), sampled()
    features, plain = nnm.reward.features, apt.reward
    assert [n for n, _ in features.encoder.named_parameters()] == [n for n, _ in plain.features.named_parameters()]
    with torch.no_grad():
        for one, two in ((features.encoder, plain.features), (features.inverse, plain.dynamics)):
            two.load_state_dict(one.state_dict())
    wanted = expected_loss(batch, features.encoder, features.inverse)
    steps = [each.step_batch(batch) for each in (nnm, apt)]
    for step in steps:
        assert step.metrics["losses/intrinsic"] == pytest.approx(wanted, rel=1e-5)
    for one, two in ((features.encoder, plain.features), (features.inverse, plain.dynamics)):
        for mine, other in zip(one.parameters(), two.parameters(), strict=True):
            torch.testing.assert_close(mine, other, rtol=0, atol=1e-6)


def test_the_ensembles_loss_is_the_trunks_and_the_members():
    """Members learn to predict the encoding, which their errors do not shape."""
    made, batch = curiosity("nnm-ensemble-urlb", **{"reward.keep": 1.0}), sampled()
    reward, features = made.reward, made.reward.features
    prepared = made.prepare(batch)
    with torch.no_grad():
        here, there = features(prepared.obs), features(prepared.next_obs)
        offset = reward.models(here, prepared.action) - there.unsqueeze(-2)
    own = expected_loss(batch, features.encoder, features.inverse)
    wanted = own + float(offset.square().mean(-1).mean((0, 1)).sum())
    loss = reward.loss(prepared, torch.Generator())
    assert float(loss.detach()) == pytest.approx(wanted, rel=1e-5)
    loss.backward()
    by_both = [weight.grad.clone() for weight in features.encoder.parameters()]
    reward.zero_grad()
    features.encoder_loss(prepared, reward.noise).backward()
    for both, weight in zip(by_both, features.encoder.parameters(), strict=True):
        torch.testing.assert_close(both, weight.grad)
