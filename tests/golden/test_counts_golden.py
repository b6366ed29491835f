"""Count bonuses against cases worked by hand, one per variant."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

from intrigue.rewards import REWARDS
from intrigue.spaces import ActionSpec, ObsSpec, Spaces
from intrigue.types import Transitions

SPACES = Spaces(ObsSpec("vector", (2,)), ActionSpec("discrete", sizes=(2,)))
# With A = identity the code of a state is the signs of its two numbers.
NE, NW, SW, SE = (1.0, 2.0), (-1.0, 3.0), (-2.0, -2.0), (5.0, -1.0)


def make(variant, **options):
    entry = REWARDS.get("counts")
    reward = entry.cls(entry.config(variant=variant, bits=2, **options), SPACES).double()
    if reward.hash is not None:
        reward.hash.projection = torch.eye(2, dtype=torch.float64)
    return reward


def walk(columns, ended=(), invalid=(), obs=None):
    """States reached, one column per environment; ends and gaps are (time, environment)."""
    reached = torch.tensor(columns, dtype=torch.float64).transpose(0, 1)  # (T, N, 2)
    lead = reached.shape[:2]
    marked = lambda places: torch.tensor([[(t, n) in places for n in range(lead[1])] for t in range(lead[0])])  # noqa: E731
    left = torch.zeros_like(reached) if obs is None else torch.tensor(obs, dtype=torch.float64).transpose(0, 1)
    return Transitions(
        obs=left,
        action=torch.zeros(*lead, 2),
        reward=torch.zeros(lead),
        terminated=marked(ended),
        truncated=torch.zeros(lead, dtype=torch.bool),
        next_obs=reached,
        valid=~marked(invalid),
        skill=torch.zeros(*lead, 0),
    )


def test_codes_are_the_signs():
    reward = make("simhash")
    assert reward._codes(walk([[NE, NW, SW, SE]]).next_obs).flatten().tolist() == [3, 2, 0, 1]


def test_lifelong_counts_are_of_all_environments_up_to_the_time_step():
    reward = make("simhash")
    batch = walk([[NE, NE, SW], [NE, NW, NE]], ended=[(0, 0)])
    score, parts = reward.score_parts(batch)
    # Time 0: both reach NE, 2 visits. Time 1: NE a third time, NW first. Time 2: SW first, NE a fourth time.
    assert parts["visits"].tolist() == [[2, 2], [3, 1], [1, 4]]
    np.testing.assert_allclose(score, [[2**-0.5] * 2, [3**-0.5, 1], [1, 0.5]], rtol=1e-12)
    reward.observe(batch, parts)
    assert reward.table[:4].tolist() == [1, 0, 1, 4]
    assert reward.score_parts(walk([[NE], [SE]]))[1]["visits"].tolist() == [[5, 1]]


def test_a_row_that_is_no_transition_is_not_counted():
    reward = make("simhash")
    batch = walk([[NE, SW, NE]], invalid=[(1, 0)])
    _, parts = reward.score_parts(batch)
    assert parts["visits"].flatten().tolist() == [1, 1, 2]
    reward.observe(batch, parts)
    assert int(reward.table.sum()) == 2


def test_codes_share_a_small_table():
    reward = make("simhash", table_size=2)
    # Codes 3, 2, 0, 1 fall into counters 1, 0, 0, 1.
    assert reward.score_parts(walk([[NE, NW, SW, SE]]))[1]["visits"].flatten().tolist() == [1, 1, 2, 2]


def test_episodic_counts_begin_anew_and_know_the_first_state():
    # From SW: NE, NE, SW and the end; from NE: NE, SW.
    left = [[SW, NE, NE, NE, NE]]
    batch = walk([[NE, NE, SW, NE, SW]], ended=[(2, 0)], obs=left)
    score, parts = make("episodic").score_parts(batch)
    assert parts["visits"].flatten().tolist() == [1, 2, 2, 2, 1]
    np.testing.assert_allclose(score.flatten(), [each**-0.5 for each in (1, 2, 2, 2, 1)], rtol=1e-12)


def test_episodic_counts_are_of_one_environment_and_go_on():
    reward = make("episodic")
    first, second = walk([[NE], [SW]], obs=[[SE], [SE]]), walk([[NE], [NE]], obs=[[NE], [SW]])
    reward.observe(first, reward.score_parts(first)[1])
    assert reward.score_parts(second)[1]["visits"].tolist() == [[2, 1]]


def test_kernel_counts_by_hand():
    """φ(s) = s, ε = 1, ξ = ½, c = ½, k = 2: distances over the mean of the row's own two."""
    constants = {"k": 2, "epsilon": 1.0, "cluster_distance": 0.5, "pseudo_count": 0.5, "feature_dim": 2}
    reward = make("kernel", **constants)
    reward.features.encoder = nn.Identity()
    batch = walk([[(3.0, 4.0), (0.0, 0.0), (3.0, 0.0)]], obs=[[(0.0, 0.0), (3.0, 4.0), (0.0, 0.0)]])
    score, parts = reward.score_parts(batch)
    # (3,4) sees one state only. (0,0) sees itself at 0 and (3,4) at 5, mean 2.5, ratios 0 and 2: K = 1 + 1/2.5.
    # (3,0) sees (0,0) twice at 3 (and (3,4) at 4): ratios 1 and 1, K = 2/1.5.
    assert parts["distance"].flatten().tolist() == [0, 2.5, 3]
    np.testing.assert_allclose(parts["visits"].flatten()[1:], [2.4, 1 + 4 / 3], rtol=1e-12)
    expected = [0, 1 / (math.sqrt(1.4) + 0.5), 1 / (math.sqrt(4 / 3) + 0.5)]
    np.testing.assert_allclose(score.flatten(), expected, rtol=1e-12)


def test_what_cannot_work_is_refused():
    entry = REWARDS.get("counts")
    assert "at most 62" in entry.cls.refusal(entry.config(variant="simhash", bits=63), SPACES)
    assert "Raise capacity" in entry.cls.refusal(entry.config(variant="kernel", capacity=3), SPACES)
    assert entry.cls.refusal(entry.config(variant="kernel", bits=63), SPACES) is None
