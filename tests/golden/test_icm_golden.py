"""ICM against cases worked by hand and NumPy in float64, one per variant; and that encodings are shared rightly."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from intrigue.nn.encoders import StateFeatures, is_next_row_obs
from intrigue.rewards import REWARDS
from intrigue.rng import seeded_construction
from intrigue.spaces import ActionSpec, ObsSpec, Spaces
from intrigue.types import Prepared, Transitions

DISCRETE, NUMBERS = ActionSpec("discrete", sizes=(2,)), ActionSpec("continuous", low=(-1.0, -1.0), high=(1.0, 1.0))
STATE = ObsSpec("vector", (2,))
IMAGE = ObsSpec("pixels", (1, 36, 36))


def make(actions=DISCRETE, **options):
    entry = REWARDS.get("icm")
    small = {"feature_dim": 3, "hidden": 4, "blocks": 1}
    with seeded_construction(0, "test"):
        return entry.cls(entry.config(**{**small, **options}), Spaces(STATE, actions)).double()


def random_batch(actions=DISCRETE, obs=(2,), time=3, envs=2):
    rng = torch.Generator().manual_seed(1)
    lead = (time, envs)
    draw = lambda *shape: torch.randn(*lead, *shape, generator=rng, dtype=torch.float64)  # noqa: E731
    classes = torch.eye(2, dtype=torch.float64)[torch.randint(2, lead, generator=rng)]
    return Transitions(
        obs=draw(*obs),
        action=classes if actions.kind == "discrete" else draw(2).tanh(),
        reward=draw(),
        terminated=torch.zeros(lead, dtype=torch.bool),
        truncated=torch.zeros(lead, dtype=torch.bool),
        next_obs=draw(*obs),
        valid=torch.ones(lead, dtype=torch.bool),
        skill=torch.zeros(*lead, 0),
    )


def dense(layer, rows):
    return rows @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()


def member(layer, *inputs):
    return np.concatenate(inputs, -1) @ layer.weight[0].detach().numpy() + layer.bias[0, 0].detach().numpy()


def encoding(reward, state):
    """Three layers with tanh between them."""
    first, _, second, _, third = reward.features.encoder.body
    return dense(third, np.tanh(dense(second, np.tanh(dense(first, state)))))


def leaky(rows):
    return np.where(rows > 0, rows, 0.2 * rows)


def prediction(reward, encoded, action):
    net = reward.models.ensemble
    if reward.cfg.variant == "paper":
        return member(net.last, np.maximum(member(net.first, encoded, action), 0))
    x = leaky(member(net.first, encoded, action))
    for first, second in net.blocks:
        x = x + member(second, leaky(member(first, x, action)), action)
    return member(net.last, x, action)


@pytest.mark.parametrize("actions", [DISCRETE, NUMBERS], ids=["classes", "numbers"])
@pytest.mark.parametrize("variant", ["paper", "official"])
def test_score_and_loss_are_numpys(variant, actions):
    reward, batch = make(actions, variant=variant), random_batch(actions)
    here, there = (encoding(reward, each.numpy()) for each in (batch.obs, batch.next_obs))
    action = batch.action.numpy()
    squared = (prediction(reward, here, action) - there) ** 2
    first, _, second = reward.features.inverse.guess
    guess = dense(second, np.maximum(dense(first, np.concatenate([here, there], -1)), 0))
    if actions.kind == "discrete":
        likely = guess - np.log(np.exp(guess).sum(-1, keepdims=True))
        inverse = -(action * likely).sum(-1).mean()
    else:
        inverse = ((guess - action) ** 2).mean()
    with torch.no_grad():
        score = reward.score(batch).numpy()
        loss = float(reward.loss(batch, torch.Generator()))
    if variant == "paper":  # η = 0.01, β = 0.2
        np.testing.assert_allclose(score, 0.01 / 2 * squared.sum(-1), rtol=1e-10)
        assert loss == pytest.approx(0.8 * inverse + 0.2 * squared.sum(-1).mean() / 2, rel=1e-10)
    else:
        np.testing.assert_allclose(score, squared.mean(-1), rtol=1e-10)
        assert loss == pytest.approx(inverse + squared.mean(), rel=1e-10)


def test_urlb_by_hand():
    # The forward net always says (0, 0); s' = (3, 4): log(1 + 5). The inverse net says tanh(0) = 0; a = (0.6, 0.8).
    reward, batch = make(NUMBERS, variant="urlb"), random_batch(NUMBERS)
    with torch.no_grad():
        for weight in reward.dynamics.parameters():
            weight.zero_()
        next_obs = torch.tensor([3.0, 4.0]).double().expand(3, 2, 2)
        batch = batch.replace(next_obs=next_obs, action=torch.tensor([0.6, 0.8]).double().expand(3, 2, 2))
        score, loss = reward.score(batch), reward.loss(batch, torch.Generator())
    torch.testing.assert_close(score, torch.full((3, 2), math.log(6)).double())
    assert float(loss) == pytest.approx(5.0 + 1.0)


def test_urlb_is_numpys():
    reward, batch = make(NUMBERS, variant="urlb"), random_batch(NUMBERS)
    first, _, second = reward.dynamics.ahead
    joined = np.concatenate([batch.obs.numpy(), batch.action.numpy()], -1)
    ahead = dense(second, np.maximum(dense(first, joined), 0))
    with torch.no_grad():
        score = reward.score(batch).numpy()
    np.testing.assert_allclose(score, np.log1p(np.linalg.norm(ahead - batch.next_obs.numpy(), axis=-1)), rtol=1e-10)


@pytest.mark.parametrize(("variant", "shaped"), [("paper", True), ("official", False)])
def test_whether_the_forward_error_trains_the_encoding(variant, shaped):
    reward, batch = make(variant=variant), random_batch()
    weights = list(reward.features.encoder.parameters())
    here, there = reward.features(batch.obs), reward.features(batch.next_obs)
    inverse = reward.features.inverse_loss(here, there, batch.action) * (0.8 if variant == "paper" else 1.0)
    alone = torch.autograd.grad(inverse, weights)
    together = torch.autograd.grad(reward.loss(batch, torch.Generator()), weights)
    same = all(torch.allclose(one, two) for one, two in zip(alone, together, strict=True))
    assert same is not shaped


def test_random_features_have_no_inverse_model():
    reward = make(encoder="random")
    assert reward.features.inverse is None
    assert not any(weight.requires_grad for weight in reward.features.parameters())


def rolling_images(time, envs):
    """A rollout of images whose successors are the next row's, but for ends at (1, 0) and (2, 1)."""
    batch = random_batch(obs=IMAGE.shape, time=time, envs=envs)
    next_obs = torch.cat([batch.obs[1:], batch.next_obs[-1:]])
    next_obs[1, 0], next_obs[2, 1] = batch.next_obs[1, 0], batch.next_obs[2, 1]  # what stood there before the reset
    ended = torch.zeros(time, envs, dtype=torch.bool)
    ended[1, 0] = ended[2, 1] = True
    return batch.replace(next_obs=next_obs, terminated=ended)


def test_states_reached_and_left_are_encoded_once(monkeypatch):
    with seeded_construction(0, "test"):
        features = StateFeatures("random", "raw", Spaces(IMAGE, DISCRETE), 5, 4).double()
    batch = rolling_images(6, 2)
    seen = []
    plain = features.encoder.forward
    monkeypatch.setattr(features.encoder, "forward", lambda obs: (seen.append(obs.numel() // 36**2), plain(obs))[1])
    with torch.no_grad():
        here, there = features.encode_pair(batch)
    assert seen == [12, 4], "all states left, then the two reached at ends and the two of the last row"
    with torch.no_grad():
        torch.testing.assert_close(here, features(batch.obs))
        torch.testing.assert_close(there, features(batch.next_obs))
    assert not torch.allclose(there[1, 0], here[2, 0]), "the state before a reset is not the one after it"


def test_a_single_pixel_tells_states_apart():
    batch = rolling_images(6, 2)
    expected = torch.ones(6, 2, dtype=torch.bool)
    expected[1, 0] = expected[2, 1] = False
    expected[-1] = False
    assert torch.equal(is_next_row_obs(batch), expected)
    changed = batch.next_obs.clone()
    changed[3, 1, 0, 35, 35] += 1e-9
    expected[3, 1] = False
    assert torch.equal(is_next_row_obs(batch.replace(next_obs=changed)), expected)


@pytest.mark.parametrize("side", [36, 37])  # 1296 bytes are whole words, 1369 are not
def test_bytes_are_told_apart_too(side):
    rng = torch.Generator().manual_seed(0)
    frames = torch.randint(256, (5, 2, 1, side, side), generator=rng, dtype=torch.uint8)
    batch = random_batch(obs=(1, side, side), time=4)
    fields = {name: getattr(batch, name) for name in Transitions.__slots__}
    reached = frames[1:].clone()
    reached[1, 0, 0, -1, -1] ^= 1
    prepared = Prepared(**fields, raw_obs=frames[:-1], raw_next_obs=reached)
    assert is_next_row_obs(prepared).tolist() == [[True, True], [False, True], [True, True], [False, False]]


def test_rows_in_any_order_are_encoded_each():
    batch = rolling_images(6, 2)
    with seeded_construction(0, "test"):
        features = StateFeatures("random", "raw", Spaces(IMAGE, DISCRETE), 5, 4).double()
    rows = batch.rows(torch.tensor([5, 0, 11, 3]))
    with torch.no_grad():
        here, there = features.encode_pair(rows)
        torch.testing.assert_close(here, features(rows.obs))
        torch.testing.assert_close(there, features(rows.next_obs))


def test_on_pixels_the_inverse_model_begins_as_disagreements():
    """Their dense layers, `fc`, have incoming weights of length 1 and no bias."""
    with seeded_construction(0, "test"):
        features = StateFeatures("idf", "raw", Spaces(IMAGE, DISCRETE), 3, 4)
    layers = [layer for layer in features.inverse.guess if isinstance(layer, torch.nn.Linear)]
    assert [tuple(layer.weight.shape) for layer in layers] == [(4, 6), (2, 4)]
    for layer in layers:
        torch.testing.assert_close(layer.weight.norm(dim=1), torch.ones(len(layer.weight)))
        assert not layer.bias.any()
