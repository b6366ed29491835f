"""Impact-driven exploration against cases worked by hand, one per variant and way of counting."""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from intrigue import Curiosity
from intrigue.rewards import REWARDS
from intrigue.spaces import ActionSpec, ObsSpec, Spaces
from intrigue.types import Transitions

SPACES = Spaces(ObsSpec("vector", (2,)), ActionSpec("discrete", sizes=(2,)))
HOME, FAR, NEAR = (0.0, 0.0), (3.0, 4.0), (3.0, 0.0)


def make(variant, **options):
    """RIDE with φ(s) = s."""
    entry = REWARDS.get("ride")
    reward = entry.cls(entry.config(variant=variant, feature_dim=2, hidden=3, **options), SPACES).double()
    reward.features.encoder = nn.Identity()
    return reward


def walk(obs, next_obs, ended=(), invalid=()):
    time = len(obs)
    flag = lambda places: torch.tensor([[t in places] for t in range(time)])  # noqa: E731
    return Transitions(
        obs=torch.tensor(obs, dtype=torch.float64).unsqueeze(1),
        action=torch.tensor([[[1.0, 0.0]]] * time, dtype=torch.float64),
        reward=torch.zeros(time, 1),
        terminated=flag(ended),
        truncated=torch.zeros(time, 1, dtype=torch.bool),
        next_obs=torch.tensor(next_obs, dtype=torch.float64).unsqueeze(1),
        valid=~flag(invalid),
        skill=torch.zeros(time, 1, 0),
    )


# HOME → FAR → HOME → FAR and the end, then FAR → HOME: steps of length 5.
FOUR = walk([HOME, FAR, HOME, FAR], [FAR, HOME, FAR, HOME], ended=(2,))


@pytest.mark.parametrize(
    ("variant", "visits"),
    [
        # FAR new; HOME has been there at the beginning; FAR again; in the new episode, which began in FAR, HOME is new.
        ("paper", [1, 2, 2, 1]),
        # Only states reached: FAR new, HOME new, FAR again, HOME new.
        ("official", [1, 1, 2, 1]),
    ],
)
def test_impact_over_the_root_of_visits(variant, visits):
    score, parts = make(variant).score_parts(FOUR)
    np.testing.assert_allclose(parts["visits"].flatten(), visits)
    np.testing.assert_allclose(score.flatten(), [5 / math.sqrt(each) for each in visits], rtol=1e-12)


def test_impact_is_the_plain_distance():
    score = make("official").score(walk([HOME, HOME], [NEAR, FAR]))
    np.testing.assert_allclose(score.flatten(), [3, 5], rtol=1e-12)


def test_a_step_that_changes_nothing_earns_nothing():
    assert float(make("official").score(walk([FAR], [FAR]))) == 0


def test_visits_go_on_in_the_next_rollout_and_end_with_the_episode():
    reward, counted = make("paper"), []
    for batch in (
        walk([HOME], [FAR]),
        walk([FAR, HOME], [HOME, FAR]),
        walk([FAR], [FAR], ended=(0,)),
        walk([FAR], [FAR]),
    ):
        _, parts = reward.score_parts(batch)
        counted += parts["visits"].flatten().tolist()
        reward.observe(batch, parts)
    # FAR; HOME (began there), FAR; FAR for the third time, and the end; a new episode began in FAR.
    assert counted == [1, 2, 2, 3, 2]


def test_kernel_visits_by_hand():
    # ε = 1, ξ = 0: K = 1/(d²/mean + 1). From HOME at the beginning: FAR at 25, mean 25, K = ½, N = 3/2.
    # Then HOME sees {HOME, FAR}: nearest of k = 1 is 0, mean 12.5, K = 1, N = 2.
    reward = make("paper", count="kernel", k=1, epsilon=1.0, cluster_distance=0.0)
    score, parts = reward.score_parts(walk([HOME, FAR], [FAR, HOME]))
    np.testing.assert_allclose(parts["visits"].flatten(), [1.5, 2])
    np.testing.assert_allclose(score.flatten(), [5 / math.sqrt(1.5), 5 / math.sqrt(2)], rtol=1e-12)


def test_images_are_counted_by_kernel_in_the_paper_and_by_equality_in_the_code():
    pixels = Spaces(ObsSpec("pixels", (1, 36, 36)), SPACES.action)
    entry = REWARDS.get("ride")
    by_kernel = {v: entry.cls(entry.config(variant=v), pixels).kernel is not None for v in ("paper", "official")}
    assert by_kernel == {"paper": True, "official": False}
    assert entry.cls(entry.config(variant="paper", count="equality"), pixels).kernel is None


@pytest.mark.parametrize(("variant", "forward"), [("official", 5.0), ("paper", 12.5)])
def test_the_loss_by_hand(variant, forward):
    """With the forward model silenced it misses φ(s') = (3, 0, 4) by all of it; the inverse model guesses evenly."""
    entry = REWARDS.get("ride")
    spaces = Spaces(ObsSpec("vector", (3,)), SPACES.action)
    reward = entry.cls(entry.config(variant=variant, feature_dim=3, hidden=2), spaces).double()
    reward.features.encoder = nn.Identity()
    for layer in (*reward.forward_model.modules(), *reward.features.inverse.modules()):
        if isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
    loss = float(reward.loss(walk([(0.0, 0.0, 0.0)], [(3.0, 0.0, 4.0)]), torch.Generator()).detach())
    assert math.isclose(loss, 10 * forward + 0.1 * math.log(2), rel_tol=1e-9)


def test_both_losses_shape_the_encoding():
    entry = REWARDS.get("ride")
    for coefs in ({"forward_coef": 0.0}, {"inverse_coef": 0.0}):
        torch.manual_seed(0)  # of three ReLUs some start, now and then, where nothing passes them
        reward = entry.cls(entry.config(feature_dim=2, hidden=3, **coefs), SPACES).double()
        reward.loss(FOUR, torch.Generator()).backward()
        assert all(bool(weight.grad.any()) for weight in reward.features.encoder.parameters())


def test_visits_are_counted_on_what_the_environment_said():
    """Running normalisation makes the same state another vector in the next rollout; the count must not notice."""
    curiosity = Curiosity(
        "ride", gym.spaces.Box(-10, 10, (2,), np.float32), gym.spaces.Discrete(2), feature_dim=2, hidden=3
    )
    visits = []
    for _ in range(3):
        step = curiosity.step(
            obs=np.array([[HOME]], np.float32),
            action=np.zeros((1, 1), np.int64),
            reward=np.zeros((1, 1)),
            terminated=np.zeros((1, 1), bool),
            truncated=np.zeros((1, 1), bool),
            next_obs=np.array([[FAR]], np.float32),
        )
        visits.append(step.metrics["intrinsic/part/visits"])
    assert visits == [1, 2, 3]
