"""RND against cases worked by hand and NumPy in float64, one per variant."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from intrigue import Curiosity
from intrigue.rewards import REWARDS
from intrigue.rewards.rnd import whiten
from intrigue.rng import seeded_construction
from intrigue.spaces import ActionSpec, ObsSpec, Spaces
from intrigue.types import Transitions

ACTIONS = ActionSpec("discrete", sizes=(2,))
STATE, IMAGE = ObsSpec("vector", (2,)), ObsSpec("pixels", (4, 36, 36))


def make(obs=STATE, **options):
    entry = REWARDS.get("rnd")
    with seeded_construction(0, "test"):
        reward = entry.cls(entry.config(**{"feature_dim": 3, "hidden": 4, **options}), Spaces(obs, ACTIONS))
    return reward.double()


def random_batch(obs=STATE, time=5, envs=2, seed=1):
    rng = torch.Generator().manual_seed(seed)
    lead = (time, envs)
    draw = lambda *shape: torch.randn(*lead, *shape, generator=rng, dtype=torch.float64)  # noqa: E731
    return Transitions(
        obs=draw(*obs.shape),
        action=draw(2),
        reward=draw(),
        terminated=torch.zeros(lead, dtype=torch.bool),
        truncated=torch.zeros(lead, dtype=torch.bool),
        next_obs=draw(*obs.shape),
        valid=torch.ones(lead, dtype=torch.bool),
        skill=torch.zeros(*lead, 0),
    )


def through(layers, rows):
    """A network of linear layers and activations, by NumPy."""
    for layer in layers:
        if isinstance(layer, nn.Linear):
            rows = rows @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
        else:
            rows = np.maximum(rows, 0) if isinstance(layer, nn.ReLU) else np.tanh(rows)
    return rows


@pytest.mark.parametrize(("variant", "expected"), [("paper", 4 + 0 + 1), ("official", (4 + 0 + 1) / 3)])
def test_known_outputs_by_hand(variant, expected):
    reward = make(variant=variant)
    with torch.no_grad():
        for weight in reward.parameters():
            weight.zero_()
        reward.target.body[-1].bias.copy_(torch.tensor([1.0, 5.0, -1.0]))
        reward.predictor[-1][-1].bias.copy_(torch.tensor([3.0, 5.0, 0.0]))
        score, loss = reward.score(random_batch()), reward.loss(random_batch(), torch.Generator())
    torch.testing.assert_close(score, torch.full((5, 2), float(expected)).double())
    assert float(loss) == pytest.approx(expected)


def test_vectors_are_numpys_and_of_the_state_reached():
    reward, batch = make(), random_batch()
    trunk, relu, head = reward.predictor
    target = through(reward.target.body, batch.next_obs.numpy())
    predicted = through([*trunk.body, relu, *head], batch.next_obs.numpy())
    with torch.no_grad():
        np.testing.assert_allclose(reward.score(batch).numpy(), ((predicted - target) ** 2).mean(-1), rtol=1e-10)


def numpy_whitened(states):
    rows = states.reshape(-1, states.shape[-1])
    return np.clip((states - rows.mean(0)) / np.sqrt(rows.var(0) + 1e-5), -5, 5)


def numpy_error(reward, states):
    seen = numpy_whitened(states)
    return ((through(reward.predictor, seen) - through(reward.target, seen)) ** 2).mean(-1)


def test_urlb_is_numpys_over_two_batches():
    reward = make(variant="urlb")
    size, mean, var = 1e-4, 0.0, 1.0  # as URLB's running moments begin
    for seed in (1, 2):
        batch = random_batch(seed=seed)
        error = numpy_error(reward, batch.obs.numpy())
        shift, total = error.mean() - mean, size + error.size
        var = (var * size + error.var(ddof=1) * error.size + shift**2 * size * error.size / total) / total
        mean, size = mean + shift * error.size / total, total
        with torch.no_grad():
            score, parts = reward.score_parts(batch)
        np.testing.assert_allclose(score.numpy(), error / (math.sqrt(var) + 1e-8), rtol=1e-9)
        reward.observe(batch, parts)
    assert float(reward.moments.count) == pytest.approx(20 + 1e-4)
    assert float(reward.moments.mean) == pytest.approx(mean)
    assert float(reward.loss(batch, torch.Generator()).detach()) == pytest.approx(error.mean(), rel=1e-9)


def test_whitening_is_batch_norms():
    states = random_batch(time=40).obs * torch.tensor([3.0, 0.1]) + 7
    states[3, 0] = 1e3
    norm = nn.BatchNorm1d(2, affine=False).double()
    expected = norm(states.flatten(0, 1)).clamp(-5, 5).unflatten(0, (40, 2))
    torch.testing.assert_close(whiten(states, torch.ones(40, 2, dtype=torch.bool)), expected)
    assert whiten(states, torch.ones(40, 2, dtype=torch.bool)).max() == 5


def test_rows_that_are_no_transitions_do_not_count():
    reward, batch = make(variant="urlb"), random_batch()
    valid = batch.valid.clone()
    valid[2, 1] = False
    poisoned = batch.obs.clone()
    poisoned[2, 1] = float("inf")
    clean, dirty = batch.replace(valid=valid), batch.replace(valid=valid, obs=poisoned)
    with torch.no_grad():
        (one, parts), (two, others) = reward.score_parts(clean), reward.score_parts(dirty)
    assert torch.equal(one[valid], two[valid])
    expected = numpy_error(reward, batch.obs[valid].numpy())
    np.testing.assert_allclose(parts["error"][valid].numpy(), expected, rtol=1e-9)
    reward.observe(dirty, others)
    assert float(reward.moments.count) == pytest.approx(9 + 1e-4)


def test_nothing_valid_changes_nothing():
    reward, batch = make(variant="urlb"), random_batch()
    batch = batch.replace(valid=torch.zeros_like(batch.valid))
    with torch.no_grad():
        score, parts = reward.score_parts(batch)
    assert torch.isfinite(score).all()
    reward.observe(batch, parts)
    assert float(reward.moments.count) == 1e-4


def test_images_begin_orthogonal_and_the_predictor_is_two_layers_longer():
    reward = make(IMAGE, feature_dim=16, hidden=16)
    kernel = reward.target.body.convs[0].weight.flatten(1)  # (32, 256)
    torch.testing.assert_close(kernel @ kernel.T, 2 * torch.eye(32).double(), rtol=0, atol=1e-5)
    dense = reward.target.body.dense.weight
    torch.testing.assert_close(dense @ dense.T, 2 * torch.eye(16).double(), rtol=0, atol=1e-5)
    count = [sum(isinstance(each, nn.Linear) for each in net.modules()) for net in (reward.target, reward.predictor)]
    assert count == [1, 3]


@pytest.mark.parametrize(("last", "matters"), [(0, [True] * 4), (1, [False] * 3 + [True]), (9, [True] * 4)])
def test_which_frames_are_seen(last, matters):
    reward, batch = make(IMAGE, last_channels=last), random_batch(IMAGE, time=1, envs=1)
    with torch.no_grad():
        plain = reward.score(batch)
        for channel, counts in enumerate(matters):
            changed = batch.next_obs.clone()
            changed[:, :, channel] += 1
            assert bool((reward.score(batch.replace(next_obs=changed)) != plain).all()) is counts


def test_states_left_and_reached():
    for variant, read, unread in (("official", "next_obs", "obs"), ("urlb", "obs", "next_obs")):
        reward, batch = make(variant=variant), random_batch()
        with torch.no_grad():
            plain = reward.score(batch)
            assert torch.equal(reward.score(batch.replace(**{unread: torch.full((5, 2, 2), 9.0).double()})), plain)
            moved = getattr(batch, read).clone()
            moved[0, 0] += 1
            assert not torch.equal(reward.score(batch.replace(**{read: moved})), plain)
        assert reward.traits.inputs == {read}


def test_running_deviation_survives_a_resume():
    from conftest import GYM_ACTIONS, GYM_OBS, make_batch, make_spaces

    options = {"variant": "urlb", "feature_dim": 4, "hidden": 8}
    first, second = (Curiosity("rnd", GYM_OBS["vector"], GYM_ACTIONS["discrete"], seed=3, **options) for _ in range(2))
    step = first.step_batch(make_batch(make_spaces(), seed=1))
    assert "intrinsic/part/error" in step.metrics
    second.load_state_dict(first.state_dict())
    one, two = (each.step_batch(make_batch(make_spaces(), seed=2)) for each in (first, second))
    assert torch.equal(one.intrinsic, two.intrinsic)
