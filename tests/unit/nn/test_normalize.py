"""Running moments and scales: merging in any order, the right axis, no blow-up."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intrigue.nn.normalize import ReturnScale, RunningMoments, ValueScale, valid_moments


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=5), st.integers(0, 2**16))
def test_moments_merge_in_any_split(sizes, seed):
    rows = torch.randn(sum(sizes), 3, generator=torch.Generator().manual_seed(seed)) * 5 + 2
    whole, split = RunningMoments((3,)), RunningMoments((3,))
    whole.observe(rows)
    for part in rows.split(sizes):
        split.observe(part)
    torch.testing.assert_close(whole.mean, split.mean)
    torch.testing.assert_close(whole.var, split.var)


def test_moments_match_the_sample():
    rows = torch.tensor([[1.0, 10.0], [3.0, 10.0]])
    moments = RunningMoments((2,))
    moments.observe(rows)
    # The prior weighs 1e-4 of a sample.
    torch.testing.assert_close(moments.mean, torch.tensor([2.0, 10.0], dtype=torch.float64), rtol=1e-3, atol=0)
    assert abs(float(moments.var[0]) - 1.0) < 1e-3
    assert float(moments.var[1]) < 1e-2


def test_long_runs_do_not_drift():
    """A million samples far from zero: a float32 sum of squares would be off in the third digit."""
    moments = RunningMoments()
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        moments.observe(torch.randn(10_000, generator=generator) + 1000)
    assert abs(float(moments.std()) - 1) < 2e-3


def test_return_scale_runs_over_time_not_over_environments():
    """An impulse in one environment must spread over later times of that environment alone."""
    reward = torch.zeros(4, 3)
    reward[1, 2] = 1.0
    scale = ReturnScale(0.5)
    scale.observe(reward)
    expected = torch.zeros(4, 3, dtype=torch.float64)
    expected[1, 2], expected[2, 2], expected[3, 2] = 1.0, 0.5, 0.25
    torch.testing.assert_close(scale.moments.mean, expected.mean(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(scale.carry, torch.tensor([0.0, 0.0, 0.25]))


def test_return_scale_carries_over_batches():
    reward = torch.rand(6, 2, generator=torch.Generator().manual_seed(0))
    whole, parts = ReturnScale(0.9), ReturnScale(0.9)
    whole.observe(reward)
    parts.observe(reward[:2])
    parts.observe(reward[2:])
    assert abs(whole.scale() - parts.scale()) < 1e-9


def test_constant_and_zero_rewards_stay_finite():
    for value in (0.0, 1.0, 1e-30, 1e8):
        for scale in (ReturnScale(0.99), ValueScale()):
            for _ in range(50):
                scale.observe(torch.full((8, 4), value))
            assert 0 < scale.scale() < float("inf")


def test_moments_of_bytes_are_those_of_their_numbers():
    rng = torch.Generator().manual_seed(0)
    frames = torch.randint(0, 256, (300, 3, 5), generator=rng, dtype=torch.uint8)
    frames[:, 0, 0], frames[:, 1, 1] = 255, 0  # one that never changes, at the far end
    quick, plain = RunningMoments((3, 5)), RunningMoments((3, 5))
    for part in (frames[:7], frames[7:]):
        quick.observe(part)
        plain.observe(part.double())
    for one, two in zip(quick.moments(), plain.moments(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-10)


def test_moments_of_valid_entries():
    values = torch.tensor([[1.0, float("inf")], [3.0, 8.0]])
    valid = torch.tensor([[True, False], [True, True]])
    biased, sample = (valid_moments(values, valid, unbiased=unbiased) for unbiased in (False, True))
    assert [float(each) for each in biased] == [3, 4, 26 / 3]  # 1, 3, 8: squares of −3, −1, 4 sum to 26
    assert float(sample.var) == 13
    one = torch.tensor([[True, False], [False, False]])
    assert [float(each) for each in valid_moments(values, one, unbiased=True)] == [1, 1, 0]
    running = RunningMoments()
    running.observe(values[valid])
    merged = running.moments().merge(valid_moments(values, torch.zeros_like(valid)))
    assert all(torch.equal(one, two) for one, two in zip(merged, running.moments(), strict=True))
