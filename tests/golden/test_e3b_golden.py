"""The elliptical bonus against cases worked by hand, one per variant."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from intrigue.rewards import REWARDS
from intrigue.spaces import ActionSpec, ObsSpec, Spaces
from intrigue.types import Transitions

SPACES = Spaces(ObsSpec("vector", (2,)), ActionSpec("discrete", sizes=(2,)))
A, B = (1.0, 0.0), (0.0, 1.0)
RIDGE = 0.1


def make(variant, **options):
    """E3B with φ(s) = s."""
    entry = REWARDS.get("e3b")
    reward = entry.cls(entry.config(variant=variant, feature_dim=2, **options), SPACES).double()
    reward.features.encoder = nn.Identity()
    return reward


def walk(obs, next_obs, ended=(), invalid=()):
    time = len(obs)
    flag = lambda places: torch.tensor([[t in places] for t in range(time)])  # noqa: E731
    return Transitions(
        obs=torch.tensor(obs, dtype=torch.float64).unsqueeze(1),
        action=torch.zeros(time, 1, 2),
        reward=torch.zeros(time, 1),
        terminated=torch.zeros(time, 1, dtype=torch.bool),
        truncated=flag(ended),
        next_obs=torch.tensor(next_obs, dtype=torch.float64).unsqueeze(1),
        valid=~flag(invalid),
        skill=torch.zeros(time, 1, 0),
    )


def inverse_count(visits):
    """1 / (λ + n): what n earlier visits to a one-hot state leave of its bonus."""
    return 1 / (RIDGE + visits)


# A → A → B → A and the end, then B → B → A.
OBS, NEXT = [A, A, B, B, B], [A, B, A, B, A]


def test_the_paper_pays_for_the_state_reached():
    score = make("paper").score(walk(OBS, NEXT, ended=(2,)))
    # A after A; B new; A after A, A; then, in the new episode, B after B; A new.
    expected = [inverse_count(1), inverse_count(0), inverse_count(2), inverse_count(1), inverse_count(0)]
    np.testing.assert_allclose(score.flatten(), expected, rtol=1e-12)


def test_the_official_code_pays_for_the_state_left_and_nothing_first():
    score = make("official").score(walk(OBS, NEXT, ended=(2,)))
    # First step; A after A; B new; first step; B after B.
    np.testing.assert_allclose(
        score.flatten(), [0, inverse_count(1), inverse_count(0), 0, inverse_count(1)], rtol=1e-12
    )


def test_oblique_states_by_hand():
    # λ = 1: C = [[2, 0], [0, 1]] after (1, 0), so (1, 1) earns ½ + 1. Then C = [[3, 1], [1, 2]], whose inverse is
    # [[2, −1], [−1, 3]]/5, and (0, 2) earns 4 · 3/5.
    batch = walk([(1, 0), (1, 1)], [(1, 1), (0, 2)])
    np.testing.assert_allclose(make("paper", ridge=1.0).score(batch).flatten(), [1.5, 2.4], rtol=1e-12)


@pytest.mark.parametrize("variant", ["paper", "official"])
def test_an_episode_across_two_rollouts_goes_on(variant):
    reward, whole = make(variant), walk(OBS, NEXT, ended=(2,))
    expected = make(variant).score(whole)
    for cut in range(1, 5):
        reward = make(variant)
        first, second = (
            walk(OBS[:cut], NEXT[:cut], ended={2} & set(range(cut))),
            walk(OBS[cut:], NEXT[cut:], ended={2 - cut}),
        )
        scores = [reward.score(first)]
        reward.observe(first, {})
        scores.append(reward.score(second))
        np.testing.assert_allclose(torch.cat(scores), expected, rtol=1e-12, err_msg=f"cut at {cut}")


def test_a_row_that_is_no_transition_is_not_a_state():
    late = walk([A, A, B, A, B, B], [A, B, A, B, B, A], ended=(2,), invalid=(3,))
    score = make("paper").score(late).flatten()
    np.testing.assert_allclose(score[[0, 1, 2, 4, 5]], make("paper").score(walk(OBS, NEXT, ended=(2,))).flatten())


def test_the_matrix_kept_is_that_of_the_episode_under_way():
    reward = make("paper")
    batch = walk(OBS, NEXT, ended=(2,))
    reward.observe(batch, {})
    # B, B and A since the end: C = λ I + diag(1, 2).
    np.testing.assert_allclose(reward.ellipse.inverse[0], np.diag([1 / 1.1, 1 / 2.1]), rtol=1e-12)
    assert reward.ellipse.written.tolist() == [3]
    reward.observe(walk([A], [B], ended=(0,)), {})
    np.testing.assert_allclose(reward.ellipse.inverse[0], np.eye(2) / RIDGE)
    assert reward.ellipse.written.tolist() == [0]
