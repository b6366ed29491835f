"""Active pre-training against float64 NumPy written from the formulas, one case per variant and per loss."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from intrigue.nn.contrastive import AMPLITUDE, random_shift
from intrigue.rewards import REWARDS
from intrigue.rng import seeded_construction
from intrigue.spaces import ActionSpec, ObsSpec, Spaces
from intrigue.types import Transitions

ACTIONS = ActionSpec("continuous", low=(-1.0, -3.0), high=(1.0, 1.0))
SPACES = Spaces(ObsSpec("vector", (3,)), ACTIONS)


def build(variant, **options):
    entry = REWARDS.get("apt")
    with seeded_construction(1, "test"):
        reward = entry.cls(entry.config(variant=variant, feature_dim=4, hidden=5, projection=3, **options), SPACES)
        for weight in reward.parameters():  # biases and gains too, which start at 0 and 1
            torch.nn.init.normal_(weight)
    return reward.double()


def batch(seed, time=5, envs=2):
    rng = np.random.default_rng(seed)
    draw = lambda *shape: torch.from_numpy(rng.normal(size=(time, envs, *shape)))  # noqa: E731
    flags = torch.zeros(time, envs, dtype=torch.bool)
    return Transitions(
        obs=draw(3),
        action=draw(2),
        reward=draw(),
        terminated=flags,
        truncated=flags,
        next_obs=draw(3),
        valid=~flags,
        skill=torch.zeros(time, envs, 0),
    )


def arrays(module):
    return [weight.detach().numpy() for weight in module.parameters()]


def layers(state, weights):
    """ReLU layers; the last one without."""
    for index in range(0, len(weights), 2):
        state = state @ weights[index].T + weights[index + 1]
        state = np.maximum(state, 0) if index + 2 < len(weights) else state
    return state


def trunk(state, weights):
    """One layer, LayerNorm, tanh."""
    weight, bias, gain, shift = weights
    wide = state @ weight.T + bias
    wide = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    return np.tanh(wide * gain + shift)


def sorted_distances(encoded, *, with_self):
    table = np.sqrt(np.square(encoded[:, None] - encoded[None]).sum(-1))
    if not with_self:
        np.fill_diagonal(table, np.inf)
    return np.sort(table, axis=1)


def running(values, k):
    """Mean and variance after 1e-4 samples of mean 0 and variance 1."""
    flat = np.concatenate([each[:, k].ravel() for each in values])
    count = flat.size + 1e-4
    mean = flat.sum() / count
    return mean, (np.square(flat - mean).sum() + 1e-4 * (1 + mean**2)) / count


def scored(reward, seeds):
    """The score of the last of several batches, each observed."""
    for seed in seeds:
        score, parts = reward.score_parts(batch(seed))
        reward.observe(batch(seed), parts)
    return score.detach().numpy().ravel()


def test_urlb_is_the_state_left_with_itself_as_first_neighbour():
    reward = build("urlb", k=3)
    encoded = trunk(batch(2).obs.flatten(0, 1).numpy(), arrays(reward.features))
    near = sorted_distances(encoded, with_self=True)[:, :3]
    np.testing.assert_allclose(scored(reward, [1, 2]), np.log(1 + near.mean(1)), rtol=1e-9)
    assert (near[:, 0] == 0).all()


def test_urlb_2021_divides_by_the_running_mean_and_clips():
    reward = build("urlb-2021", k=3)
    weights = arrays(reward.features)
    nears = [
        sorted_distances(layers(batch(seed).next_obs.flatten(0, 1).numpy(), weights), with_self=True) for seed in (1, 2)
    ]
    mean, _ = running(nears, slice(0, 3))
    wanted = np.log(1 + np.maximum(nears[1][:, :3] / mean - 1e-4, 0).mean(1))
    np.testing.assert_allclose(scored(reward, [1, 2]), wanted, rtol=1e-9)


def test_official_is_the_kth_over_the_running_variance():
    reward = build("official", k=4)
    weights = arrays(reward.features.encoder)
    nears = [
        sorted_distances(layers(batch(seed).next_obs.flatten(0, 1).numpy(), weights), with_self=True) for seed in (1, 2)
    ]
    _, var = running(nears, slice(3, 4))
    np.testing.assert_allclose(
        scored(reward, [1, 2]), np.log(1 + np.maximum(nears[1][:, 3] / var - 5e-4, 0)), rtol=1e-9
    )


def test_paper_leaves_the_state_itself_out():
    reward = build("paper", k=4)
    encoded = layers(batch(2).next_obs.flatten(0, 1).numpy(), arrays(reward.features.encoder))
    near = sorted_distances(encoded, with_self=False)[:, :4]
    np.testing.assert_allclose(scored(reward, [1, 2]), np.log(1 + near.mean(1)), rtol=1e-9)


@pytest.mark.parametrize("variant", ["urlb", "urlb-2021"])
def test_loss_is_the_sum_of_two_mean_norms(variant):
    reward, rows = build(variant), batch(3)
    encode = trunk if variant == "urlb" else layers
    obs, there, action = (each.flatten(0, 1).numpy() for each in (rows.obs, rows.next_obs, rows.action))
    here, there = (encode(each, arrays(reward.features)) for each in (obs, there))
    ahead = layers(np.concatenate([here, action], 1), arrays(reward.dynamics.ahead))
    guess = np.tanh(layers(np.concatenate([here, there], 1), arrays(reward.dynamics.back)))
    guess = np.array([0.0, -1.0]) + np.array([1.0, 2.0]) * guess  # bounds -1..1 and -3..1
    wanted = np.linalg.norm(there - ahead, axis=1).mean() + np.linalg.norm(action - guess, axis=1).mean()
    loss = float(reward.loss(rows, torch.Generator()).detach())
    assert math.isclose(loss, wanted, rel_tol=1e-9)


def test_contrast_compares_each_view_with_all_others():
    reward, rows = build("paper"), batch(3, time=3)
    rng = torch.Generator().manual_seed(7)
    low, high = AMPLITUDE
    scales = [low + (high - low) * torch.rand(6, 1, generator=rng).double().numpy() for _ in range(2)]
    obs = rows.obs.flatten(0, 1).numpy()
    encoded = layers(np.concatenate([obs * scale for scale in scales]), arrays(reward.features.encoder))
    weight, bias = arrays(reward.features.head)
    unit = encoded @ weight.T + bias
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    total = 0.0
    for row in range(12):
        likeness = {other: math.exp(unit[row] @ unit[other] / 0.07) for other in range(12) if other != row}
        total -= math.log(likeness[(row + 6) % 12] / sum(likeness.values())) / 12
    assert math.isclose(float(reward.loss(rows, torch.Generator().manual_seed(7)).detach()), total, rel_tol=1e-6)


def test_shifted_images_are_crops_of_the_padded_ones():
    images = torch.rand(40, 2, 7, 9, generator=torch.Generator().manual_seed(0))
    moved = random_shift(images, 2, torch.Generator().manual_seed(1)).numpy()
    padded = np.pad(images.numpy(), ((0, 0), (0, 0), (2, 2), (2, 2)), mode="edge")
    places = set()
    for index in range(40):
        crops = {(y, x): padded[index, :, y : y + 7, x : x + 9] for y in range(5) for x in range(5)}
        fitting = [place for place, crop in crops.items() if np.array_equal(crop, moved[index])]
        assert len(fitting) == 1
        places.update(fitting)
    assert {y for y, _ in places} == {x for _, x in places} == set(range(5))


def test_defaults_are_the_benchmarks():
    reward = REWARDS.get("apt").cls(REWARDS.get("apt").config(), SPACES)
    assert reward.entropy.k == 12
    assert [tuple(weight.shape) for weight in reward.features.parameters()] == [(512, 3), (512,), (512,), (512,)]
    assert reward.dynamics.ahead[0].weight.shape == (1024, 512 + 2)
    assert reward.dynamics.back[0].weight.shape == (1024, 2 * 512)
