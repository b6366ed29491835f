"""The nuclear-norm bonus against cases worked by hand, one per source and form."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from intrigue.rewards import REWARDS
from intrigue.spaces import ActionSpec, ObsSpec, Spaces
from intrigue.types import Transitions

SPACES = Spaces(ObsSpec("vector", (3,)), ActionSpec("discrete", sizes=(2,)))


def knn(**options):
    entry = REWARDS.get("nnm")
    plain = {"source": "knn", "encoder": "identity", "features": "raw", "n": 3}
    return entry.cls(entry.config(**{**plain, **options}), SPACES)


def states(*rows):
    """A batch of T=len(rows), N=1 whose successors are the given states."""
    next_obs = torch.from_numpy(np.array(rows, dtype=np.float32)).unsqueeze(1)
    lead = next_obs.shape[:2]
    return Transitions(
        obs=torch.zeros_like(next_obs),
        action=torch.zeros(*lead, 2),
        reward=torch.zeros(lead),
        terminated=torch.zeros(lead, dtype=torch.bool),
        truncated=torch.zeros(lead, dtype=torch.bool),
        next_obs=next_obs,
        valid=torch.ones(lead, dtype=torch.bool),
        skill=torch.zeros(*lead, 0),
    )


def test_knn_centered_is_the_norm_of_the_offsets():
    # From (0,0,0) the two nearest are (3,0,0) and (0,4,0); offsets diag(3, 4): singular values 4 and 3.
    score = knn(form="centered").score(states((0, 0, 0), (3, 0, 0), (0, 4, 0), (50, 50, 50)))
    assert math.isclose(float(score[0, 0]), (3 + 4) / math.sqrt(3), rel_tol=1e-6)


def test_knn_ratio_of_orthogonal_rows():
    # Z = I: ‖Z‖_* = 3, ‖Z‖_F = √3, max(m, n) = 3.
    score = knn(form="ratio").score(states((1, 0, 0), (0, 1, 0), (0, 0, 1)))
    assert torch.allclose(score, torch.ones(3, 1))
    floor = knn(form="floor").score(states((1, 0, 0), (0, 1, 0), (0, 0, 1)))
    assert torch.allclose(floor, torch.ones(3, 1), atol=1e-6)


def test_knn_ratio_of_equal_rows():
    score = knn(form="ratio").score(states((1, 2, 2), (1, 2, 2), (1, 2, 2)))
    assert torch.allclose(score, torch.full((3, 1), 1 / math.sqrt(3)))
    assert torch.allclose(
        knn(form="floor").score(states((1, 2, 2), (1, 2, 2), (1, 2, 2))), torch.zeros(3, 1), atol=1e-6
    )
    assert torch.allclose(knn(form="centered").score(states((1, 2, 2), (1, 2, 2), (1, 2, 2))), torch.zeros(3, 1))


def test_a_state_is_not_its_own_neighbour():
    reward = knn(form="centered", n=2)
    score = reward.score(states((0, 0, 0), (0, 0, 2)))
    assert torch.allclose(score, torch.full((2, 1), 2 / math.sqrt(3)))


def test_memory_is_searched_once_it_is_filled():
    reward = knn(form="centered", n=2, memory=4, memory_stride=1)
    reward.observe(states((0, 0, 1), (5, 5, 5)), {})
    score = reward.score(states((0, 0, 0), (0, 0, 0.5)))
    # The nearest remembered state is (0,0,1) for both; the batch itself is not searched.
    np.testing.assert_allclose(score.squeeze().numpy(), np.array([1.0, 0.5]) / math.sqrt(3), rtol=1e-6)


def test_memory_forgets_the_oldest_and_keeps_every_strideth():
    reward = knn(form="centered", n=2, memory=2, memory_stride=2)
    reward.observe(states((1, 0, 0), (9, 9, 9), (2, 0, 0), (9, 9, 9)), {})
    assert sorted(reward.memory.filled()[:, 0].tolist()) == [1.0, 2.0]
    reward.observe(states((3, 0, 0)), {})
    assert sorted(reward.memory.filled()[:, 0].tolist()) == [2.0, 3.0]


def test_every_environment_is_remembered_whatever_the_stride():
    """A stride that divides the number of environments must not pick the same environments for ever."""
    reward = knn(form="centered", n=2, memory=64, memory_stride=4)
    obs = torch.arange(8.0).reshape(1, 8, 1).expand(4, 8, 3).contiguous()  # environment i is always in state (i, i, i)
    batch = states((0, 0, 0))
    flags = torch.zeros(4, 8, dtype=torch.bool)
    reward.observe(
        batch.replace(
            obs=obs, next_obs=obs, action=torch.zeros(4, 8, 2), reward=torch.zeros(4, 8), terminated=flags,
            truncated=flags, valid=~flags, skill=torch.zeros(4, 8, 0),
        ),
        {},
    )  # fmt: skip
    assert sorted(reward.memory.filled()[:, 0].tolist()) == [0, 1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("which", ["obs", "next_obs"])
def test_the_state_left_or_the_state_reached(which):
    batch = states((0, 0, 0), (0, 3, 0))
    batch = batch.replace(obs=torch.tensor([[[0.0, 0, 0]], [[1.0, 0, 0]]]))
    score = knn(form="centered", n=2, neighbours_of=which).score(batch)
    assert torch.allclose(score, torch.full((2, 1), (1 if which == "obs" else 3) / math.sqrt(3)))


@pytest.mark.parametrize("form", ["ratio", "floor", "centered"])
def test_ensemble_against_numpy(form):
    """Predictions taken from the models, everything after them recomputed in float64 NumPy."""
    entry = REWARDS.get("nnm")
    torch.manual_seed(0)
    reward = entry.cls(entry.config(form=form, n=4, feature_dim=6, hidden=5, blocks=1), SPACES)
    batch = states((1, 2, 3), (0, 1, 0)).replace(
        obs=torch.randn(2, 1, 3), action=torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    )
    with torch.no_grad():
        features = reward.features(batch.obs).flatten(0, 1)
        predicted = reward.models.ensemble(features, batch.action.flatten(0, 1)).double().numpy()  # (4, 2, 6)
        score = reward.score(batch)
    for row in range(2):
        z = predicted[:, row]
        if form == "centered":
            expected = np.linalg.svd(z - z.mean(0), compute_uv=False).sum() / math.sqrt(6)
        else:
            ratio = np.linalg.svd(z, compute_uv=False).sum() / np.linalg.norm(z)
            expected = ratio / math.sqrt(6) if form == "ratio" else (ratio - 1) / (math.sqrt(4) - 1)
        assert math.isclose(float(score[row, 0]), expected, rel_tol=1e-5)


def test_layer_normalised_features_have_a_fixed_length():
    entry = REWARDS.get("nnm")
    reward = entry.cls(entry.config(feature_dim=16, hidden=8), SPACES)
    with torch.no_grad():
        encoded = reward.features(torch.randn(50, 3) * torch.logspace(0, 2, 50).unsqueeze(-1))
    np.testing.assert_allclose(encoded.norm(dim=-1).numpy(), 4.0, rtol=1e-2)


def test_each_member_learns_from_its_own_share():
    """With every sample kept the loss is the plain error; with some dropped it is not, but is unbiased."""
    entry = REWARDS.get("nnm")
    torch.manual_seed(0)
    batch = states(*np.random.default_rng(0).normal(size=(400, 3)))
    all_kept = entry.cls(entry.config(feature_dim=6, hidden=5, blocks=0, keep=1.0), SPACES)
    dropped = entry.cls(entry.config(feature_dim=6, hidden=5, blocks=0, keep=0.5), SPACES)
    dropped.load_state_dict(all_kept.state_dict())
    with torch.no_grad():
        plain = float(all_kept.loss(batch, torch.Generator().manual_seed(0)))
        draws = [float(dropped.loss(batch, torch.Generator().manual_seed(seed))) for seed in range(200)]
    assert np.std(draws) > 0
    assert abs(np.mean(draws) - plain) < 4 * np.std(draws) / math.sqrt(200)


@pytest.mark.parametrize("encoder", ["idf", "icm"])
def test_trained_encoders_move_and_random_ones_do_not(encoder):
    entry = REWARDS.get("nnm")
    batch = states(*np.random.default_rng(0).normal(size=(20, 3)))
    batch = batch.replace(action=torch.tensor([1.0, 0.0]).expand(20, 1, 2))
    for kind, moves in ((encoder, True), ("random", False)):
        reward = entry.cls(entry.config(encoder=kind, feature_dim=6, hidden=5, blocks=0), SPACES)
        reward.loss(batch, torch.Generator().manual_seed(0)).backward()
        grads = [weight.grad for weight in reward.features.encoder.parameters()]
        assert any(grad is not None and grad.abs().sum() > 0 for grad in grads) == moves


def test_rows_that_are_no_transitions_are_nobodys_neighbours():
    """(0,0,0) has (3,0,0) and (0,4,0); a reset row at (0,0,1) would be nearer than both."""
    reward = knn(form="centered", n=3)
    batch = states((0, 0, 0), (3, 0, 0), (0, 4, 0), (0, 0, 1))
    valid = torch.tensor([[True], [True], [True], [False]])
    with torch.no_grad():
        score = reward.score(batch.replace(valid=valid))
        alone = reward.score(states((0, 0, 0), (3, 0, 0), (0, 4, 0)))
    assert score[0].item() == pytest.approx((3 + 4) / math.sqrt(3))
    torch.testing.assert_close(score[:3], alone)


def test_too_few_valid_rows_leave_the_state_itself():
    """One valid row: its neighbours are itself, at no distance."""
    batch = states((1, 2, 3), (0, 0, 1), (5, 5, 5)).replace(valid=torch.tensor([[True], [False], [False]]))
    with torch.no_grad():
        assert knn(form="centered", n=3).score(batch)[0].item() == pytest.approx(0, abs=1e-6)
