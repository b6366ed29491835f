"""The order of a curiosity step, its mixing, and that nothing is edited in place."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from conftest import GYM_ACTIONS, GYM_OBS, make_batch, make_spaces, same_state
from intrigue import Curiosity
from intrigue.errors import ConfigError, NonFiniteError
from intrigue.types import Transitions

SPACES = make_spaces()


def make(reward="rnd", **options):
    small = {"feature_dim": 4, "hidden": 8, "minibatches": 2, "epochs": 1}
    if reward == "none":
        small = {"minibatches": 2}
    return Curiosity(reward, GYM_OBS["vector"], GYM_ACTIONS["discrete"], **{**small, **options})


def test_bonus_comes_from_the_models_before_learning():
    curiosity, twin = make(learning_rate=0.1), make(learning_rate=0.1)
    batch = make_batch(SPACES)
    with torch.no_grad():
        before = twin.reward.score(twin.prepare(batch))
    step = curiosity.step_batch(batch)
    assert torch.equal(step.intrinsic, before)
    with torch.no_grad():
        after = curiosity.reward.score(twin.prepare(batch))
    assert not torch.allclose(after, before), "it must have learned, but only afterwards"


def test_moments_of_a_batch_are_used_from_the_next_one_on():
    curiosity = make()
    batch = make_batch(SPACES)
    first = curiosity.prepare(batch).next_obs
    torch.testing.assert_close(first, batch.next_obs.clamp(-5, 5), rtol=1e-3, atol=1e-3)
    curiosity.step_batch(batch)
    mean = batch.next_obs.reshape(-1, 6).mean(0)
    torch.testing.assert_close(curiosity.obs_moments.mean.float(), mean, rtol=1e-3, atol=1e-3)
    assert not torch.allclose(curiosity.prepare(batch).next_obs, first)


def test_only_what_a_reward_reads_is_prepared():
    batch = make_batch(SPACES)
    shapes = {}
    for variant in ("official", "urlb"):
        prepared = make("rnd", variant=variant).prepare(batch)
        shapes[variant] = tuple(prepared.obs.shape), tuple(prepared.next_obs.shape)
    assert shapes == {"official": ((6, 4, 0), (6, 4, 6)), "urlb": ((6, 4, 6), (6, 4, 0))}
    prepared = make("icm").prepare(batch)
    assert prepared.obs.shape == prepared.next_obs.shape == (6, 4, 6)


def test_rows_that_are_no_transitions_teach_nothing():
    batch = make_batch(SPACES)
    valid = batch.valid.clone()
    valid[3, 2] = False
    poisoned = batch.obs.clone(), batch.next_obs.clone()
    poisoned[0][3, 2], poisoned[1][3, 2] = 1e3, -1e3
    clean, dirty = make(), make()
    one = clean.step_batch(batch.replace(valid=valid))
    two = dirty.step_batch(batch.replace(valid=valid, obs=poisoned[0], next_obs=poisoned[1]))
    assert one.intrinsic[3, 2] == 0
    assert torch.equal(one.reward, two.reward)
    assert same_state(clean.state_dict(), dirty.state_dict())


def test_mixing_by_hand():
    curiosity = make("rnd", int_coef=0.5, ext_coef=2.0, ext_clip=1.0)
    batch = make_batch(SPACES)
    step = curiosity.step_batch(batch)
    scaled = step.intrinsic / curiosity.scale.scale()
    torch.testing.assert_close(step.reward, 0.5 * scaled + 2.0 * batch.reward.clamp(-1, 1))
    assert [each.name for each in step.streams] == ["total"]
    assert torch.equal(step.streams[0].reward, step.reward)


def test_total_scale_divides_the_sum():
    curiosity = make("rnd", ext_coef=2.0, scale="total")
    batch = make_batch(SPACES)
    step = curiosity.step_batch(batch)
    torch.testing.assert_close(step.reward, (step.intrinsic + 2 * batch.reward) / curiosity.scale.scale())


def test_two_streams_are_handed_on_apart():
    curiosity = make("rnd", int_coef=1.0, ext_coef=2.0, streams="two")
    batch = make_batch(SPACES)
    step = curiosity.step_batch(batch)
    extrinsic, intrinsic = step.streams
    assert (extrinsic.name, extrinsic.weight) == ("extrinsic", 2.0)
    assert (intrinsic.name, intrinsic.weight) == ("intrinsic", 1.0)
    assert torch.equal(extrinsic.reward, batch.reward)
    torch.testing.assert_close(intrinsic.reward, step.intrinsic / curiosity.scale.scale())


def test_the_coefficient_follows_its_schedule():
    curiosity = make("none", int_coef=1.0, int_coef_final=0.5, int_coef_steps=48)
    seen = []
    for _ in range(4):
        seen.append(curiosity.coefficient())
        curiosity.step_batch(make_batch(SPACES))  # 24 steps
    assert seen == [1.0, 0.75, 0.5, 0.5]


def test_inputs_are_never_edited():
    batch = make_batch(SPACES)
    kept = {key: value.clone() for key, value in dataclasses.asdict(batch).items()}
    make(ext_coef=1.0).step_batch(batch)
    assert all(torch.equal(getattr(batch, key), value) for key, value in kept.items())


def test_arrays_and_tensors_give_the_same():
    batch = make_batch(SPACES)
    fields = [name for name in Transitions.__slots__ if name != "valid"]
    tensors = {name: getattr(batch, name) for name in fields}
    arrays = {name: value.numpy() for name, value in tensors.items()}
    one, two = make().step(**tensors), make().step(**arrays)
    assert torch.equal(one.reward, two.reward)
    assert isinstance(one.metrics["intrinsic/raw_mean"], float)


def test_swapped_axes_are_refused():
    batch = make_batch(SPACES)
    with pytest.raises(ValueError, match="time first"):
        make().step_batch(batch.replace(reward=batch.reward.T))


def test_non_finite_bonus_stops_before_anything_learns():
    curiosity = make()
    before = curiosity.state_dict()
    batch = make_batch(SPACES)
    broken = batch.next_obs.clone()
    broken[2, 1, 0] = float("nan")
    with pytest.raises(NonFiniteError, match="time 2, environment 1"):
        curiosity.step_batch(batch.replace(next_obs=broken))
    assert same_state(before, curiosity.state_dict())


def test_warm_up_feeds_the_moments_only():
    curiosity = make()
    weights = [weight.clone() for weight in curiosity.reward.parameters()]
    curiosity.warm_up(np.full((10, 4, 6), 3.0, dtype=np.float32))
    torch.testing.assert_close(curiosity.obs_moments.mean, torch.full((6,), 3.0).double(), rtol=1e-4, atol=0)
    assert all(torch.equal(one, two) for one, two in zip(weights, curiosity.reward.parameters(), strict=True))


def test_all_wrong_options_are_told_at_once():
    with pytest.raises(ConfigError) as caught:
        make("nnm", form="centred", feature_dims=8, int_coef="much")
    text = str(caught.value)
    assert "'centered'" in text
    assert "'feature_dim'" in text
    assert "int_coef" in text


def test_curiosity_and_reward_fields_never_share_a_name():
    """Options are one flat namespace; a shared name could not be told apart."""
    from intrigue.config.curiosity import CuriosityConfig
    from intrigue.rewards import REWARDS

    own = {each.name for each in dataclasses.fields(CuriosityConfig)} | {"device", "seed"}
    for name in REWARDS.names():
        assert own.isdisjoint(REWARDS.declaration(name).hints()), name


def test_unknown_reward_names_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'nnm'"):
        make("nnmm")


def test_the_spread_of_values_leaves_out_rows_that_are_no_transitions():
    """Windows drawn from a replay have rows after an episode's end; their zeros would be most of a ratio's spread."""
    curiosity = make("rnd", scale="value")
    batch = make_batch(SPACES)
    valid = batch.valid.clone()
    valid[2:, 1] = False
    step = curiosity.step_batch(batch.replace(valid=valid))
    counted = step.intrinsic[valid].double()
    assert curiosity.scale.scale() == pytest.approx(float(counted.std(unbiased=False)), rel=1e-4)
    assert step.metrics["intrinsic/raw_mean"] == pytest.approx(float(counted.mean()))
    assert step.metrics["intrinsic/raw_std"] == pytest.approx(float(counted.std(unbiased=False)))
    assert step.metrics["intrinsic/scaled_mean"] == pytest.approx(float(counted.mean()) / curiosity.scale.scale())


@pytest.mark.parametrize("minibatch_of", ["rows", "environments"])
def test_as_many_minibatches_as_asked_for_and_none_that_is_empty(minibatch_of):
    curiosity = make(minibatches=3, minibatch_of=minibatch_of)
    batch = make_batch(SPACES)  # (6, 4)
    assert [len(each.reward.flatten()) for each in curiosity.trainer._parts(batch)] == (
        [8, 8, 8] if minibatch_of == "rows" else [12, 6, 6]
    )
    only_one = torch.zeros_like(batch.valid)
    only_one[:, 1] = True
    step = curiosity.step_batch(batch.replace(valid=only_one))
    assert np.isfinite(step.metrics["losses/intrinsic"])
    nothing = curiosity.step_batch(batch.replace(valid=torch.zeros_like(batch.valid)))
    assert nothing.metrics["losses/intrinsic"] == 0
