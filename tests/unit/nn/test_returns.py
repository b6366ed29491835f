"""Advantages and discounted sums against values worked by hand."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intrigue.nn.returns import discounted_sums, gae

NEVER = torch.zeros(3, 1, dtype=torch.bool)


def column(*values):
    return torch.tensor(values, dtype=torch.float64).unsqueeze(-1)


def flags(*values):
    return torch.tensor(values, dtype=torch.bool).unsqueeze(-1)


def test_without_an_end():
    # δ = [1 + .5·2 − 1, 0 + .5·3 − 2, 2 + .5·4 − 3] = [1, −.5, 1]; γλ = .25
    advantage = gae(column(1, 0, 2), column(1, 2, 3), column(2, 3, 4), NEVER, NEVER, discount=0.5, gae_lambda=0.5)
    torch.testing.assert_close(advantage, column(1 + 0.25 * (-0.5 + 0.25 * 1), -0.5 + 0.25 * 1, 1.0))


def test_termination_has_no_future():
    terminated = flags(0, 1, 0)
    # δ_1 = 0 − 2 (no next value), and the chain from step 2 does not reach it.
    advantage = gae(column(1, 0, 2), column(1, 2, 3), column(2, 9, 4), terminated, NEVER, discount=0.5, gae_lambda=0.5)
    torch.testing.assert_close(advantage, column(1 + 0.25 * -2, -2.0, 1.0))


def test_truncation_keeps_the_successors_value():
    truncated = flags(0, 1, 0)
    # δ_1 = 0 + .5·9 − 2 = 2.5: bootstrapped on the true successor, but the chain is cut.
    advantage = gae(column(1, 0, 2), column(1, 2, 3), column(2, 9, 4), NEVER, truncated, discount=0.5, gae_lambda=0.5)
    torch.testing.assert_close(advantage, column(1 + 0.25 * 2.5, 2.5, 1.0))


def test_time_is_the_first_axis():
    """Two environments of unlike rewards must not touch each other; a swapped axis would mix them."""
    reward = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 5.0]])
    zero, never = torch.zeros(3, 2), torch.zeros(3, 2, dtype=torch.bool)
    advantage = gae(reward, zero, zero, never, never, discount=0.5, gae_lambda=1.0)
    torch.testing.assert_close(advantage, torch.tensor([[1.0, 1.25], [0.0, 2.5], [0.0, 5.0]]))


def test_discounted_sums_run_over_time_per_environment():
    reward = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 0.0]])
    sums = discounted_sums(reward, torch.tensor([4.0, 0.0]), 0.5)
    torch.testing.assert_close(sums, torch.tensor([[3.0, 0.0], [1.5, 2.0], [1.75, 1.0]]))


def test_discounted_sums_continue_across_batches():
    reward = torch.rand(6, 3, generator=torch.Generator().manual_seed(0))
    whole = discounted_sums(reward, torch.zeros(3), 0.9)
    first = discounted_sums(reward[:2], torch.zeros(3), 0.9)
    second = discounted_sums(reward[2:], first[-1], 0.9)
    torch.testing.assert_close(torch.cat([first, second]), whole)


numbers = st.floats(-10, 10, width=32)


@st.composite
def rollouts(draw):
    time, envs = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    grid = lambda strategy: draw(  # noqa: E731
        st.lists(st.lists(strategy, min_size=envs, max_size=envs), min_size=time, max_size=time)
    )
    tensors = [torch.tensor(grid(numbers), dtype=torch.float64) for _ in range(3)]
    ends = [torch.tensor(grid(st.booleans())) for _ in range(2)]
    return tensors, ends


@settings(max_examples=60, deadline=None)
@given(rollouts(), st.floats(0.1, 0.99))
def test_lambda_one_is_bootstrapped_monte_carlo_minus_value(rollout, discount):
    (reward, value, next_value), (terminated, truncated) = rollout
    advantage = gae(reward, value, next_value, terminated, truncated, discount=discount, gae_lambda=1.0)
    # With values that agree between steps, V(s'_t) = V(s_{t+1}) inside an episode.
    time = reward.shape[0]
    inside = ~(terminated | truncated)
    linked = next_value.clone()
    for t in range(time - 1):
        linked[t] = torch.where(inside[t], value[t + 1], next_value[t])
    advantage = gae(reward, value, linked, terminated, truncated, discount=discount, gae_lambda=1.0)
    for n in range(reward.shape[1]):
        for t in range(time):
            total, weight, u = 0.0, 1.0, t
            while True:
                total += weight * float(reward[u, n])
                weight *= discount
                if bool(terminated[u, n]):
                    break
                if bool(truncated[u, n]) or u == time - 1:
                    total += weight * float(linked[u, n])
                    break
                u += 1
            assert abs(float(advantage[t, n]) - (total - float(value[t, n]))) < 1e-6 * (1 + abs(total))


@settings(max_examples=60, deadline=None)
@given(rollouts(), st.floats(0, 0.99))
def test_lambda_zero_is_the_td_error(rollout, discount):
    (reward, value, next_value), (terminated, truncated) = rollout
    advantage = gae(reward, value, next_value, terminated, truncated, discount=discount, gae_lambda=0.0)
    expected = reward + discount * next_value * (~terminated) - value
    torch.testing.assert_close(advantage, expected)
