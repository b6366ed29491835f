"""ProtoRL against float64 NumPy written from the formulas and from the benchmark's queue, step by step."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch

from intrigue.rewards import REWARDS
from intrigue.rewards.proto import sinkhorn
from intrigue.rng import seeded_construction
from intrigue.spaces import ActionSpec, ObsSpec, Spaces
from intrigue.types import Transitions

SPACES = Spaces(ObsSpec("vector", (3,)), ActionSpec("discrete", sizes=(2,)))


def build(variant="urlb", **options):
    entry = REWARDS.get("proto")
    small = {"feature_dim": 4, "hidden": 5, "prototypes": 6, "queue": 15, "k": 2}
    with seeded_construction(1, "test"):
        reward = entry.cls(entry.config(variant=variant, **{**small, **options}), SPACES)
        for module in (reward.predictor, reward.projector):
            for weight in module.parameters():  # biases too, which start at 0
                torch.nn.init.normal_(weight)
    return reward.double()


def batch(seed, time=6, envs=2, invalid=()):
    rng = np.random.default_rng(seed)
    flags = torch.zeros(time, envs, dtype=torch.bool)
    valid = ~flags
    for place in invalid:
        valid[place] = False
    return Transitions(
        obs=torch.from_numpy(rng.normal(size=(time, envs, 3))),
        action=torch.zeros(time, envs, 2),
        reward=torch.zeros(time, envs),
        terminated=flags,
        truncated=flags,
        next_obs=torch.from_numpy(rng.normal(size=(time, envs, 3))),
        valid=valid,
        skill=torch.zeros(time, envs, 0),
    )


def arrays(module):
    return [weight.detach().numpy() for weight in module.parameters()]


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def encode(predictor, obs):
    weight, bias = arrays(predictor)
    return unit(obs.flatten(0, 1).numpy() @ weight.T + bias)


def kth_nearest(encoded, queue, k):
    return np.sort(np.sqrt(np.square(encoded[:, None] - queue[None]).sum(-1)), axis=1)[:, k - 1]


@pytest.mark.parametrize("variant", ["urlb", "urlb-2021"])
def test_distance_to_a_queue_that_already_holds_the_batchs_candidates(variant):
    """Six candidates a batch into fifteen rows: the third batch wraps around; the early benchmark's never moves."""
    reward = build(variant)
    queue, written = np.zeros((15, 4)), 0
    for seed in range(4):
        rows = batch(seed)
        score, parts = reward.score_parts(rows)
        encoded = encode(reward.predictor, rows.next_obs)
        chosen = np.repeat(np.arange(12), parts["chosen"].long().flatten().numpy())
        assert len(chosen) == 6
        for offset, row in enumerate(chosen):
            queue[(written + offset) % 15 if variant == "urlb" else offset] = encoded[row]
        written += 6
        known = queue[: min(written, 15)] if variant == "urlb" else queue
        np.testing.assert_allclose(score.detach().flatten().numpy(), kth_nearest(encoded, known, 2), rtol=1e-9)
        reward.observe(rows, parts)
        np.testing.assert_allclose(reward.queue.numpy(), queue, rtol=1e-9, atol=1e-12)
    assert (queue[6:] == 0).all() == (variant == "urlb-2021")


def test_standing_pointer_keeps_the_bonus_at_one_or_below():
    """Zero rows are at distance 1 from everything of length 1; a moving pointer is soon rid of them."""
    seen = batch(0).replace(next_obs=batch(0).next_obs.abs())
    opposite = seen.next_obs.clone()
    opposite[0, 0] *= -1
    for variant, above in (("urlb-2021", False), ("urlb", True)):
        reward = build(variant, feature_dim=3, queue=12)
        with torch.no_grad():  # z is the direction of the state itself
            reward.predictor.weight.copy_(torch.eye(3))
            reward.predictor.bias.zero_()
            for _ in range(4):
                reward.observe(seen, reward.score_parts(seen)[1])
            score = reward.score(seen.replace(next_obs=opposite))
        assert bool(score[0, 0] > 1.4) == above
        assert above or score.max() <= 1 + 1e-9


def test_candidates_are_drawn_in_proportion_to_their_likeness():
    reward = build(prototypes=8, queue=8)
    rows = batch(5, time=16, envs=1, invalid=[(2, 0)])
    encoded = encode(reward.predictor, rows.next_obs)
    weights = np.exp(unit(reward.prototypes.detach().numpy()) @ encoded.T)
    weights[:, 2] = 0
    wanted = (weights / weights.sum(1, keepdims=True)).sum(0)  # every prototype draws once a batch
    drawn, batches = np.zeros(16), 400
    with torch.no_grad():
        for _ in range(batches):
            drawn += reward.score_parts(rows)[1]["chosen"].flatten().numpy()
            reward.draws.advance()
    assert drawn[2] == 0
    np.testing.assert_allclose(drawn / batches, wanted, atol=4.5 * math.sqrt(wanted.max() / batches))


def test_of_few_states_only_half_as_many_prototypes_draw_and_all_in_turn():
    reward, rows = build(prototypes=6), batch(0, time=4, envs=1)
    held = reward.prototypes.detach().clone()
    for turn in ([0, 1], [2, 3], [4, 5], [0, 1]):
        parts = reward.score_parts(rows)[1]
        assert int(parts["chosen"].sum()) == 2
        others = [each for each in range(6) if each not in turn]
        with torch.no_grad():  # whatever the others are, who is chosen does not change
            for seed in range(5):
                reward.prototypes[others] = torch.randn(4, 4, generator=torch.Generator().manual_seed(seed)).double()
                assert torch.equal(reward.score_parts(rows)[1]["chosen"], parts["chosen"])
            reward.prototypes.copy_(held)
        reward.observe(rows, parts)
    assert int(reward.written) == 8


def test_sinkhorn_against_scaling_in_plain_numbers():
    scores = np.random.default_rng(0).normal(size=(7, 5)) * 3
    table = np.exp(scores - scores.max()).T
    table /= table.sum()
    for _ in range(3):
        table *= (1 / 5 / table.sum(1))[:, None]
        table *= (1 / 7 / table.sum(0))[None]
    wanted = (table / table.sum(0)).T
    np.testing.assert_allclose(sinkhorn(torch.from_numpy(scores), 3).numpy(), wanted, rtol=1e-9)
    many = sinkhorn(torch.from_numpy(scores), 200).numpy()
    np.testing.assert_allclose(many.sum(0), 7 / 5, rtol=1e-6)
    assert torch.isfinite(sinkhorn(torch.from_numpy(scores).float() * 1000, 3)).all()


def test_loss_predicts_the_copies_assignment():
    reward, rows = build(temperature=0.3), batch(3)
    with torch.no_grad():  # a copy that lags behind
        reward.target_predictor.weight.mul_(0.5).add_(0.1)
    prototypes = unit(reward.prototypes.detach().numpy())
    weight, bias = arrays(reward.predictor)
    first, first_bias, last, last_bias = arrays(reward.projector)
    inner = rows.obs.flatten(0, 1).numpy() @ weight.T + bias
    ahead = unit(np.maximum(inner @ first.T + first_bias, 0) @ last.T + last_bias)
    logits = ahead @ prototypes.T / 0.3
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    target = encode(reward.target_predictor, rows.next_obs) @ prototypes.T / 0.3
    share = sinkhorn(torch.from_numpy(target), 3).numpy()
    loss = reward.loss(rows, torch.Generator())
    assert math.isclose(float(loss.detach()), -(share * log_p).sum(1).mean(), rel_tol=1e-9)


def test_only_the_online_side_learns_and_rows_of_prototypes_as_they_are():
    reward, rows = build(), batch(3)
    reward.loss(rows, torch.Generator()).backward()
    assert all(weight.grad is None for weight in reward.target_predictor.parameters())
    assert reward.predictor.weight.grad.abs().sum() > 0
    # The gradient for the rows themselves has a part along each row; one for their directions would not.
    along = (reward.prototypes.grad * reward.prototypes.detach()).sum(-1)
    assert along.abs().max() > 1e-3


def test_observing_moves_the_copies_and_restores_the_prototypes():
    reward, rows = build(target_rate=0.25), batch(3)
    before = copy.deepcopy(reward.target_predictor.weight)
    with torch.no_grad():
        reward.predictor.weight.add_(1.0)
        reward.prototypes.mul_(torch.arange(1.0, 7.0).unsqueeze(-1))
    reward.observe(rows, reward.score_parts(rows)[1])
    torch.testing.assert_close(reward.target_predictor.weight, before + 0.25 * (reward.predictor.weight - before))
    torch.testing.assert_close(reward.prototypes.norm(dim=-1), torch.ones(6, dtype=torch.float64))


def test_a_batch_without_a_transition_enqueues_nothing():
    reward = build()
    reward.observe(batch(0), reward.score_parts(batch(0))[1])
    before = reward.queue.clone()
    empty = batch(1, time=1, envs=2, invalid=[(0, 0), (0, 1)])
    score, parts = reward.score_parts(empty)
    reward.observe(empty, parts)
    assert torch.isfinite(score).all()
    assert torch.equal(reward.queue, before) and int(reward.written) == 6


def test_defaults_are_the_benchmarks():
    entry = REWARDS.get("proto")
    reward = entry.cls(entry.config(), SPACES)
    assert reward.predictor.weight.shape == (128, 3)
    assert [tuple(w.shape) for w in reward.projector.parameters()] == [(512, 128), (512,), (128, 512), (128,)]
    assert reward.prototypes.shape == (512, 128) and reward.queue.shape == (2048, 128)
    assert (reward.cfg.k, reward.cfg.temperature, reward.cfg.rounds, reward.cfg.target_rate) == (3, 0.1, 3, 0.05)
    assert "use more rows" in entry.cls.refusal(entry.config(queue=100), SPACES)
