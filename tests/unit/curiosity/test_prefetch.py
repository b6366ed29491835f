"""Encodings made ahead are those made at the end, and never another rollout's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from conftest import GYM_ACTIONS, GYM_OBS, make_batch, make_spaces
from intrigue.curiosity.curiosity import Curiosity
from intrigue.curiosity.prefetch import PIECE, FeaturePrefetcher
from intrigue.types import Transitions

STEPS = 2 * PIECE + 3
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


class Encoder:
    """Sums of some numbers, and how many steps were asked for at a time."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, states: Tensor) -> Tensor:
        self.asked.append(len(states))
        return states.flatten(2).float().sum(-1, keepdim=True)


@pytest.fixture(params=DEVICES)
def states(request: pytest.FixtureRequest) -> Tensor:
    draws = torch.Generator().manual_seed(0)
    return torch.randint(0, 255, (STEPS, 3, 4, 6, 6), generator=draws, dtype=torch.uint8).to(request.param)


@pytest.fixture
def ahead() -> FeaturePrefetcher:
    return FeaturePrefetcher(devices=("cpu", "cuda"))


def test_whole_pieces_are_encoded_as_they_come(ahead, states):
    encode = Encoder()
    seen = []
    for count in range(STEPS + 1):
        ahead.look(states, count, encode)
        seen.append(len(encode.asked))
    assert seen == [count // PIECE for count in range(STEPS + 1)]
    found = ahead.take(states, encode)
    assert encode.asked == [PIECE, PIECE, 3], "nothing is encoded twice"
    assert torch.equal(found, Encoder()(states))


@pytest.mark.parametrize("looks", [[], [PIECE], [STEPS], [PIECE - 1, 2 * PIECE]])
def test_pieces_are_the_same_whenever_they_are_made(ahead, states, looks):
    encode = Encoder()
    for count in looks:
        ahead.look(states, count, encode)
    assert torch.equal(ahead.take(states, encode), Encoder()(states))
    assert sorted(encode.asked) == [3, PIECE, PIECE]


def test_another_rollout_is_not_taken_for_this_one(ahead, states):
    other = states.flip(0).contiguous()
    ahead.look(other, STEPS, Encoder())
    assert torch.equal(ahead.take(states, Encoder()), Encoder()(states))
    ahead.look(other, STEPS, Encoder())
    short = states[: PIECE // 2]
    assert torch.equal(ahead.take(short, Encoder()), Encoder()(short))
    again = Encoder()
    assert torch.equal(ahead.take(other, again), Encoder()(other))
    assert again.asked == [PIECE, PIECE, 3], "what was made of it was given away with the last"


def test_what_is_forgotten_is_encoded_anew(ahead, states):
    ahead.look(states, STEPS, lambda those: Encoder()(those) + 1)
    ahead.forget()
    assert torch.equal(ahead.take(states, Encoder()), Encoder()(states))


def test_a_cpu_makes_nothing_ahead_and_encodes_all_at_once():
    ahead, encode = FeaturePrefetcher(), Encoder()
    states = torch.zeros(STEPS, 2, 1, 3, 3)
    ahead.look(states, STEPS, encode)
    assert encode.asked == []
    ahead.take(states, encode)
    assert encode.asked == [STEPS]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reward", ["nnm", "disagreement", "icm"])
def test_a_bonus_is_the_same_with_and_without_looking_ahead(reward, device):
    """The whole of it: scored, learned from, scored again."""
    alone, looking = (make(reward, device) for _ in range(2))
    for seed in range(2):
        batch = following(seed, device)
        for count in range(1, STEPS + 1):
            looking.prefetch_features(batch.obs, count)
        one, other = alone.step_batch(batch), looking.step_batch(batch)
        assert torch.equal(one.intrinsic, other.intrinsic)
        assert one.metrics == other.metrics
    looking.prefetch_features(batch.obs, STEPS)
    for each in (alone, looking):
        each.obs_moments.observe(torch.zeros_like(batch.next_obs))
        each.load_state_dict(each.state_dict())  # after which nothing made ahead may be used
    assert torch.equal(alone.step_batch(batch).intrinsic, looking.step_batch(batch).intrinsic)


def make(reward: str, device: str) -> Curiosity:
    small = {"encoder": "random", "feature_dim": 8, "hidden": 8, "blocks": 0, "minibatches": 2, "epochs": 1}
    made = Curiosity(reward, GYM_OBS["pixels"], GYM_ACTIONS["discrete"], device=device, **small)
    made._ahead = FeaturePrefetcher(devices=("cpu", "cuda"))
    return made


def following(seed: int, device: str) -> Transitions:
    """A batch in which most states reached are left in the next row."""
    batch = make_batch(make_spaces("pixels"), time=STEPS, seed=seed)
    next_obs = batch.next_obs.clone()
    next_obs[:-1] = torch.where(batch.ended[:-1, :, None, None, None], next_obs[:-1], batch.obs[1:])
    batch = batch.replace(next_obs=next_obs)
    return Transitions(*(each.to(device) for each in batch.tensors()))
