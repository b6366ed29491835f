"""Noise on features: its size, its units, who shares a draw, and that only its own stream decides it."""

from __future__ import annotations

import pytest
import torch

from conftest import GYM_ACTIONS, GYM_OBS, make_batch, make_spaces
from intrigue import Curiosity
from intrigue.nn.feature_noise import FeatureNoise


def noise(sigma: float, units: str = "absolute", draw: str = "shared", seed: int = 0) -> FeatureNoise:
    made = FeatureNoise()
    made.attach(sigma, units, draw, torch.Generator().manual_seed(seed))
    return made


def test_silent_noise_returns_the_very_tensor_and_draws_nothing() -> None:
    rng = torch.Generator().manual_seed(0)
    silent, encoded = FeatureNoise(), torch.randn(3, 2, 4)
    silent.attach(0.0, "absolute", "shared", rng)
    assert silent(encoded) is encoded
    assert torch.equal(rng.get_state(), torch.Generator().manual_seed(0).get_state())


@pytest.mark.parametrize(("units", "expected"), [("absolute", 0.25), ("relative", 0.25 * 8.0)])
def test_size_of_the_noise(units: str, expected: float) -> None:
    """20,000 draws: the standard error of a standard deviation is 0.5 %, so 3 % is six of them."""
    encoded = 8.0 * torch.randn(100, 10, 20, generator=torch.Generator().manual_seed(1))
    encoded = 8.0 * (encoded - encoded.mean()) / encoded.std(unbiased=False)
    disturbed = noise(0.25, units)
    difference = disturbed(encoded) - encoded
    assert float(difference.std()) == pytest.approx(expected, rel=0.03)
    assert float(difference.mean()) == pytest.approx(0, abs=0.03 * expected)
    assert float(disturbed.spread) == pytest.approx(8.0, rel=1e-4)


def test_members_share_a_draw_or_have_their_own() -> None:
    encoded = torch.zeros(50, 3, 4)
    shared = noise(1.0, draw="shared").for_members(encoded, 5)
    own = noise(1.0, draw="member").for_members(encoded, 5)
    assert shared.shape == own.shape == (50, 3, 5, 4)
    assert (shared == shared[..., :1, :]).all()
    assert float(own.std(dim=-2).mean()) > 0.5


def test_two_encodings_get_independent_draws() -> None:
    """Inputs and targets of a model must not be shifted alike."""
    disturbed, encoded = noise(1.0), torch.zeros(4000)
    first, second = disturbed(encoded), disturbed(encoded)
    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 0.08  # five standard errors


def test_the_noise_stream_moves_nothing_else() -> None:
    """With and without noise the other streams stand at the same place after a step."""
    spaces = make_spaces()
    after = []
    for sigma in (0.0, 0.5):
        curiosity = Curiosity("nnm", GYM_OBS["vector"], GYM_ACTIONS["discrete"], feature_noise=sigma, feature_dim=8)
        curiosity.step_batch(make_batch(spaces))
        after.append(curiosity.streams.state_dict())
    assert all(torch.equal(after[0][name], after[1][name]) for name in after[0] if name != "noise")
    assert not torch.equal(after[0]["noise"], after[1]["noise"])


def test_per_member_noise_spreads_an_ensemble_that_agrees() -> None:
    """Members with equal weights disagree only through their own draws; a shared draw leaves them agreed."""
    spreads = {}
    for draw in ("shared", "member"):
        curiosity = Curiosity(
            "nnmc", GYM_OBS["vector"], GYM_ACTIONS["discrete"],
            feature_noise=0.5, feature_noise_draw=draw, feature_dim=8, hidden=8, blocks=1,
        )  # fmt: skip
        with torch.no_grad():
            for weight in curiosity.reward.models.ensemble.parameters():
                weight.copy_(weight[:1].expand_as(weight))
            batch = curiosity.prepare(make_batch(make_spaces()))
            spreads[draw] = float(curiosity.reward.score(batch).max())
    assert spreads["shared"] < 1e-5 < 1e-2 < spreads["member"]


@pytest.mark.parametrize("name", ["episodic", "e3b", "ride", "icm", "disagreement", "nnm"])
def test_the_loss_of_trained_encoders_is_disturbed_too(name: str) -> None:
    """Every encoding passes through the noise, also on its way to the inverse model."""
    options = {"encoder": "idf"} if name in ("icm", "disagreement", "nnm") else {}
    losses = []
    for sigma in (0.0, 5.0):
        curiosity = Curiosity(
            name, GYM_OBS["vector"], GYM_ACTIONS["discrete"], feature_noise=sigma, feature_dim=8, hidden=8, **options
        )
        batch = curiosity.prepare(make_batch(make_spaces(), time=1, envs=24))
        rngs = [torch.Generator().manual_seed(0) for _ in range(2)]
        losses.append([float(curiosity.reward.loss(batch, rng).detach()) for rng in rngs])
    assert losses[0][0] == losses[0][1]
    assert losses[1][0] != losses[1][1] and losses[1][0] != losses[0][0]


def test_the_inverse_model_alone_is_disturbed() -> None:
    curiosity = Curiosity("episodic", GYM_OBS["vector"], GYM_ACTIONS["discrete"], feature_noise=5.0)
    batch = curiosity.prepare(make_batch(make_spaces()))
    features, noise = curiosity.reward.features, curiosity.reward.noise
    first, second = (float(features.encoder_loss(batch, noise).detach()) for _ in range(2))
    assert first != second
