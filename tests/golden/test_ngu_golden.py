"""NGU and its two factors against cases worked by hand and against a plain loop in float64 NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from intrigue.rewards import REWARDS
from intrigue.spaces import ActionSpec, ObsSpec, Spaces
from intrigue.types import Transitions

SPACES = Spaces(ObsSpec("vector", (1,)), ActionSpec("discrete", sizes=(2,)))
# Round numbers, so that every step below can be followed.
KERNEL = {"feature_dim": 1, "k": 1, "epsilon": 1.0, "cluster_distance": 0.5, "pseudo_count": 0.5}


def make(name, **options):
    """The reward with φ(s) = s."""
    entry = REWARDS.get(name)
    reward = entry.cls(entry.config(**options), SPACES).double()
    for module in (reward, getattr(reward, "episodic", None)):
        if hasattr(module, "features"):
            module.features.encoder = nn.Identity()
    return reward


def walk(obs, next_obs, ended=(), invalid=()):
    """One environment that goes from obs[t] to next_obs[t]."""
    time = len(obs)
    flag = lambda places: torch.tensor([[t in places] for t in range(time)])  # noqa: E731
    states = [torch.tensor(each, dtype=torch.float64).reshape(time, 1, 1) for each in (obs, next_obs)]
    return Transitions(
        obs=states[0],
        action=torch.zeros(time, 1, 2),
        reward=torch.zeros(time, 1),
        terminated=flag(ended),
        truncated=torch.zeros(time, 1, dtype=torch.bool),
        next_obs=states[1],
        valid=~flag(invalid),
        skill=torch.zeros(time, 1, 0),
    )


# An episode 0 → 3 → 3 → 4, its end, another 10 → 6 → 8.
FIVE = walk([0, 3, 3, 10, 6], [3, 3, 4, 6, 8], ended=(2,))
# Squared distance to the nearest of the episode so far, the running mean of these, K = 1 / (max(d²/mean − ½, 0) + 1):
#   3 sees {0}           9     9       ratio 1        K = 2/3
#   3 sees {0, 3}        0     9/2     ratio 0        K = 1
#   4 sees {0, 3, 3}     1     10/3    ratio 3/10     K = 1
#   6 sees {10}         16     13/2    ratio 32/13    K = 26/77      (the old episode's 4 would be nearer)
#   8 sees {10, 6}       4     6       ratio 2/3      K = 6/7
KERNELS = [2 / 3, 1, 1, 26 / 77, 6 / 7]


def test_five_steps_by_hand():
    score, parts = make("episodic", **KERNEL).score_parts(FIVE)
    assert parts["distance"].flatten().tolist() == [9, 0, 1, 16, 4]
    np.testing.assert_allclose(score.flatten(), [1 / (math.sqrt(kernel) + 0.5) for kernel in KERNELS], rtol=1e-12)


def test_a_state_too_similar_earns_nothing():
    # s = √K + ½: 1.32, 1.5, 1.5, 1.08, 1.43; only those up to 1.4 are paid.
    score = make("episodic", **KERNEL, max_similarity=1.4).score(FIVE)
    assert (score.flatten() > 0).tolist() == [True, False, False, True, False]


def test_nothing_is_paid_before_k_states_are_remembered():
    score, parts = make("episodic", **{**KERNEL, "k": 2}).score_parts(FIVE)
    # Two of the episode so far: from 3 (after 0 and 3) d² = 0 and 9; from 4, 1 and 1; from 8 (after 10 and 6) 4 and 4.
    assert parts["distance"].flatten().tolist() == [0, 4.5, 1, 0, 4]
    # Means 4.5, 2.75, 9.5/3. K sums: 1 + 1/(2−½+1); 2·1; 2/(24/19−½+1).
    sums = [1 + 1 / 2.5, 2, 2 / (24 / 19 + 0.5)]
    expected = [0, *(1 / (math.sqrt(each) + 0.5) for each in sums[:2]), 0, 1 / (math.sqrt(sums[2]) + 0.5)]
    np.testing.assert_allclose(score.flatten(), expected, rtol=1e-12)


def test_a_row_that_is_no_transition_leaves_no_trace():
    # As the five above, with the late reset of a vector environment (4 → 10) between the episodes.
    late = walk([0, 3, 3, 4, 10, 6], [3, 3, 4, 10, 6, 8], ended=(2,), invalid=(3,))
    reward = make("episodic", **KERNEL)
    score, parts = reward.score_parts(late)
    np.testing.assert_allclose(
        score.flatten()[[0, 1, 2, 4, 5]], make("episodic", **KERNEL).score(FIVE).flatten(), rtol=1e-12
    )
    reward.observe(late, parts)
    assert reward.counts.memory.written.tolist() == [3]
    assert reward.counts.memory.rows[0, :3].flatten().tolist() == [10, 6, 8]
    assert (float(reward.counts.usual.total), float(reward.counts.usual.count)) == (9 + 0 + 1 + 16 + 4, 5)


def test_the_usual_distance_of_ngu_is_the_mean_over_the_whole_list():
    """Paper, Algorithm 1: the moving average takes all k squared distances, not only the k-th."""
    _, parts = make("episodic", **{**KERNEL, "k": 2}).score_parts(walk([0, 1], [1, 3]))
    assert parts["distance"].flatten().tolist() == [0, (4 + 9) / 2]


def test_default_constants_are_those_of_the_specification():
    cfg = REWARDS.get("ngu").config()
    found = (cfg.k, cfg.epsilon, cfg.cluster_distance, cfg.pseudo_count, cfg.max_similarity, cfg.clip, cfg.capacity)
    assert found == (10, 1e-4, 0.008, 1e-3, 8.0, 5.0, 30_000)
    assert cfg.feature_dim == 32


def random_walk(rng, time, envs, ends):
    return Transitions(
        obs=torch.from_numpy(rng.normal(size=(time, envs, 1))),
        action=torch.zeros(time, envs, 2),
        reward=torch.zeros(time, envs),
        terminated=torch.from_numpy(rng.random((time, envs)) < ends),
        truncated=torch.zeros(time, envs, dtype=torch.bool),
        next_obs=torch.from_numpy(rng.normal(size=(time, envs, 1))),
        valid=torch.ones(time, envs, dtype=torch.bool),
        skill=torch.zeros(time, envs, 0),
    )


def test_episodic_is_the_papers_algorithm_step_by_step():
    """Badia et al. 2020, Algorithm 1, one environment and one step at a time, over three rollouts."""
    rng = np.random.default_rng(0)
    reward, k, envs = make("episodic", feature_dim=1, k=3), 3, 2
    memory, total, count = [[] for _ in range(envs)], [0.0] * envs, [0] * envs
    for _ in range(3):
        batch = random_walk(rng, 17, envs, 0.1)
        score, parts = reward.score_parts(batch)
        reward.observe(batch, parts)
        for t in range(17):
            for n in range(envs):
                memory[n] = memory[n] or [float(batch.obs[t, n])]
                state, expected = float(batch.next_obs[t, n]), 0.0
                if len(memory[n]) >= k:
                    near = sorted((state - each) ** 2 for each in memory[n])[:k]
                    total[n], count[n] = total[n] + sum(near), count[n] + k
                    rate = [max(each / (total[n] / count[n]) - 0.008, 0) for each in near]
                    similarity = math.sqrt(sum(1e-4 / (each + 1e-4) for each in rate)) + 0.001
                    expected = 0.0 if similarity > 8 else 1 / similarity
                np.testing.assert_allclose(float(score[t, n]), expected, rtol=1e-8)
                memory[n] = [] if batch.terminated[t, n] else [*memory[n], state]


class Error(nn.Module):
    """Stands in for RND: the error of a state is the state itself."""

    def score(self, batch):
        return batch.next_obs.squeeze(-1)


def lifelong(reward):
    reward.rnd = Error()
    return reward


def test_alpha_by_hand():
    reward = lifelong(make("rnd_alpha", feature_dim=1, hidden=1))
    # Errors 2, 4 of two environments, then 6, 6; the prior of 1e-4 samples of mean 0 and variance 1 hardly counts.
    batch = random_walk(np.random.default_rng(0), 2, 2, 0)
    batch = batch.replace(next_obs=torch.tensor([[2.0, 4.0], [6.0, 6.0]], dtype=torch.float64).unsqueeze(-1))
    score, parts = reward.score_parts(batch)
    # Time 0: mean 3, variance 1: α = 0, 2. Time 1: mean 4.5, variance (6.25 + 0.25 + 2.25 + 2.25)/4 = 2.75.
    np.testing.assert_allclose(score[0], [0, 2], atol=2e-3)
    np.testing.assert_allclose(score[1], [1 + 1.5 / math.sqrt(2.75)] * 2, atol=2e-3)
    reward.observe(batch, parts)
    np.testing.assert_allclose([float(reward.errors.mean), float(reward.errors.var)], [4.5, 2.75], atol=2e-3)


def test_alpha_counts_valid_rows_only():
    reward = lifelong(make("rnd_alpha", feature_dim=1, hidden=1))
    batch = walk([0, 0, 0], [2, 1000, 4], invalid=(1,))
    score, parts = reward.score_parts(batch)
    np.testing.assert_allclose(float(score[2, 0]), 1 + (4 - 3) / 1, atol=2e-3)
    reward.observe(batch, parts)
    np.testing.assert_allclose(float(reward.errors.mean), 3, atol=2e-3)


def test_ngu_by_hand():
    reward = make("ngu", **KERNEL, clip=1.5)
    lifelong(reward.lifelong)
    score, parts = reward.score_parts(FIVE)
    # Errors are 3, 3, 4, 6, 8: α = 1, 1, 1 + (2/3)/√(2/9) = 2.41, then more; below 1 counts as 1, above 1.5 as 1.5.
    alpha = parts["lifelong"].flatten()
    np.testing.assert_allclose(alpha[:3], [1, 1, 1 + math.sqrt(2)], atol=0.05)
    factors = [1, 1, 1.5, 1.5, 1.5]
    expected = [factor / (math.sqrt(kernel) + 0.5) for kernel, factor in zip(KERNELS, factors, strict=True)]
    np.testing.assert_allclose(score.flatten(), expected, rtol=0.02)
    np.testing.assert_allclose(score.flatten()[2:], expected[2:], rtol=1e-12)


def test_ngu_never_pays_less_than_the_episodic_bonus():
    reward = make("ngu", **KERNEL)
    lifelong(reward.lifelong)
    falling = walk([0, 9, 5], [9, 5, 1])  # errors fall, so α does, below 1
    score, parts = reward.score_parts(falling)
    assert float(parts["lifelong"][2, 0]) < 1
    assert torch.equal(score[2], parts["episodic"][2])


@pytest.mark.parametrize("rollouts", [1, 3])
def test_ngu_is_the_product_of_its_parts_with_their_states(rollouts):
    """What `episodic * clip(rnd_alpha, 1, 5)` computes, learning included."""
    spaces = Spaces(ObsSpec("vector", (3,)), ActionSpec("discrete", sizes=(2,)))
    sizes = {"feature_dim": 4, "hidden": 5}
    build = lambda name, **options: (lambda entry: entry.cls(entry.config(**options), spaces))(REWARDS.get(name))  # noqa: E731
    ngu = build("ngu", **sizes, k=2, lifelong_dim=6, lifelong_hidden=7)
    episodic, alpha = build("episodic", **sizes, k=2), build("rnd_alpha", feature_dim=6, hidden=7)
    state = ngu.state_dict()
    for part, prefix in ((episodic, "episodic."), (alpha, "lifelong.")):
        part.load_state_dict({key.removeprefix(prefix): state[key] for key in state if key.startswith(prefix)})
    rng = torch.Generator().manual_seed(0)
    for _ in range(rollouts):
        lead = (8, 3)
        batch = Transitions(
            obs=torch.randn(*lead, 3, generator=rng),
            action=torch.nn.functional.one_hot(torch.randint(2, lead, generator=rng), 2).float(),
            reward=torch.zeros(lead),
            terminated=torch.rand(lead, generator=rng) < 0.1,
            truncated=torch.rand(lead, generator=rng) < 0.1,
            next_obs=torch.randn(*lead, 3, generator=rng),
            valid=torch.rand(lead, generator=rng) < 0.9,
            skill=torch.zeros(*lead, 0),
        )
        with torch.no_grad():
            whole, parts = ngu.score_parts(batch)
            first, near = episodic.score_parts(batch)
            second, known = alpha.score_parts(batch)
            assert torch.equal(whole, first * second.clamp(1, 5))
            assert torch.equal(ngu.loss(batch, rng), episodic.loss(batch, rng) + alpha.loss(batch, rng))
        ngu.observe(batch, parts)
        episodic.observe(batch, near)
        alpha.observe(batch, known)
    assert float(whole.max()) > 0


def test_a_memory_smaller_than_k_is_refused():
    for name in ("episodic", "ngu"):
        entry = REWARDS.get(name)
        assert "Raise capacity" in entry.cls.refusal(entry.config(capacity=5), SPACES)
    entry = REWARDS.get("ngu")
    assert "Use 1 or more" in entry.cls.refusal(entry.config(clip=0.5), SPACES)
