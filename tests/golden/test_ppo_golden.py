"""PPO's advantages and loss against cases worked by hand: which end cuts what, for which stream."""

from __future__ import annotations

import math

import pytest
import torch

from intrigue.agents import AGENTS
from intrigue.nn.returns import gae
from intrigue.spaces import ActionSpec, ObsSpec, Spaces
from intrigue.types import Stream, Transitions

SPACES = Spaces(ObsSpec("vector", (1,)), ActionSpec("discrete", sizes=(2,)))


def ppo(streams=("total",), **options):
    entry = AGENTS.get("ppo")
    agent = entry.cls(entry.config(hidden=4, minibatches=1, normalize_advantage=False, **options), SPACES, streams)
    # V(s) = s for every head, so that expected values can be read off the observations.
    agent.nets.value = lambda obs, skill: obs.float().expand(*obs.shape[:-1], len(streams))
    return agent


def column(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype).unsqueeze(-1)


def three_steps(terminated=(0, 0, 0), truncated=(0, 0, 0), next_obs=(2.0, 3.0, 4.0), valid=(1, 1, 1)):
    """States 1, 2, 3 of one environment; values equal the states."""
    return Transitions(
        obs=column(1.0, 2.0, 3.0).unsqueeze(-1),
        action=torch.zeros(3, 1, dtype=torch.int64),
        reward=torch.zeros(3, 1),
        terminated=column(*terminated, dtype=torch.bool),
        truncated=column(*truncated, dtype=torch.bool),
        next_obs=column(*next_obs).unsqueeze(-1),
        valid=column(*valid, dtype=torch.bool),
        skill=torch.zeros(3, 1, 0),
    )


def extras_of(batch, heads=1, last_obs=4.0):
    return {
        "value": batch.obs.expand(3, 1, heads).clone(),
        "last_obs": torch.tensor([[last_obs]]),
        "last_skill": torch.zeros(1, 0),
    }


REWARD = column(1.0, 0.0, 2.0)


def test_plain_rollout():
    batch = three_steps()
    advantage, target = ppo(discount=0.5, gae_lambda=0.5).advantages(
        batch, [Stream("total", REWARD, 1.0)], extras_of(batch)
    )
    # δ = [1 + 1 − 1, 0 + 1.5 − 2, 2 + 2 − 3] = [1, −.5, 1]
    expected = column(1 + 0.25 * (-0.5 + 0.25), -0.5 + 0.25, 1.0)
    torch.testing.assert_close(advantage, expected)
    torch.testing.assert_close(target.squeeze(-1), expected + column(1.0, 2.0, 3.0))


def test_truncation_looks_at_the_true_successor_not_at_the_reset():
    # Step 1 is cut off in state 9; the next row starts anew in state 3.
    batch = three_steps(truncated=(0, 1, 0), next_obs=(2.0, 9.0, 4.0))
    advantage, _ = ppo(discount=0.5, gae_lambda=0.5).advantages(batch, [Stream("total", REWARD, 1.0)], extras_of(batch))
    torch.testing.assert_close(advantage, column(1 + 0.25 * 2.5, 0 + 0.5 * 9 - 2, 1.0))


def test_termination_looks_at_nothing():
    batch = three_steps(terminated=(0, 1, 0), next_obs=(2.0, 9.0, 4.0))
    advantage, _ = ppo(discount=0.5, gae_lambda=0.5).advantages(batch, [Stream("total", REWARD, 1.0)], extras_of(batch))
    torch.testing.assert_close(advantage, column(1 + 0.25 * -2, -2.0, 1.0))


def test_ignore_done_flows_through_the_reset():
    batch = three_steps(terminated=(0, 1, 0), next_obs=(2.0, 9.0, 4.0))
    advantage, _ = ppo(discount=0.5, gae_lambda=0.5, ignore_done=True).advantages(
        batch, [Stream("total", REWARD, 1.0)], extras_of(batch)
    )
    # As if nothing had ended: the value after step 1 is that of the next row, state 3.
    torch.testing.assert_close(advantage, column(1 + 0.25 * (-0.5 + 0.25), -0.5 + 0.25, 1.0))


def test_the_last_row_ends_in_its_own_successor_or_in_the_reset():
    batch = three_steps(terminated=(0, 0, 1), next_obs=(2.0, 3.0, 9.0))
    streams = [Stream("total", REWARD, 1.0)]
    episodic, _ = ppo(discount=0.5, gae_lambda=0.5).advantages(batch, streams, extras_of(batch, last_obs=7.0))
    endless, _ = ppo(discount=0.5, gae_lambda=0.5, ignore_done=True).advantages(
        batch, streams, extras_of(batch, last_obs=7.0)
    )
    assert math.isclose(float(episodic[2, 0]), 2 - 3)
    assert math.isclose(float(endless[2, 0]), 2 + 0.5 * 7 - 3)


def test_streams_have_their_own_discount_ends_and_weight():
    batch = three_steps(terminated=(0, 1, 0), next_obs=(2.0, 9.0, 4.0))
    agent = ppo(("extrinsic", "intrinsic"), discount=0.5, int_discount=0.9, gae_lambda=0.5)
    bonus = column(3.0, 1.0, 1.0)
    streams = [Stream("extrinsic", REWARD, 2.0), Stream("intrinsic", bonus, 0.5)]
    advantage, target = agent.advantages(batch, streams, extras_of(batch, heads=2))
    value, never = column(1.0, 2.0, 3.0), torch.zeros(3, 1, dtype=torch.bool)
    extrinsic = gae(REWARD, value, column(2.0, 9.0, 4.0), batch.terminated, never, discount=0.5, gae_lambda=0.5)
    intrinsic = gae(bonus, value, column(2.0, 3.0, 4.0), never, never, discount=0.9, gae_lambda=0.5)
    torch.testing.assert_close(advantage, 2 * extrinsic + 0.5 * intrinsic)
    torch.testing.assert_close(target, torch.stack([extrinsic + value, intrinsic + value], -1))


def test_a_row_that_is_no_transition_cuts_the_chain_and_teaches_nothing():
    batch = three_steps(terminated=(1, 0, 0), valid=(1, 0, 1))
    agent = ppo(discount=0.5, gae_lambda=0.5)
    advantage, _ = agent.advantages(batch, [Stream("total", REWARD, 1.0)], extras_of(batch))
    assert math.isclose(float(advantage[0, 0]), 1 - 1)
    assert math.isclose(float(advantage[2, 0]), 1.0)


def test_advantages_are_normalised_over_valid_rows():
    entry = AGENTS.get("ppo")
    agent = entry.cls(entry.config(hidden=4, minibatches=1), SPACES, ("total",))
    batch = three_steps()
    extras = {"value": torch.zeros(3, 1, 1), "last_obs": torch.zeros(1, 1), "last_skill": torch.zeros(1, 0)}
    advantage, _ = agent.advantages(batch, [Stream("total", REWARD, 1.0)], extras)
    assert abs(float(advantage.mean())) < 1e-6
    assert abs(float(advantage.std(unbiased=False)) - 1) < 1e-5


def test_annealing_reaches_zero_and_stays():
    agent = ppo(learning_rate=1e-3, anneal_steps=100)
    assert agent._learning_rate(0) == 1e-3
    assert math.isclose(agent._learning_rate(75), 2.5e-4)
    assert agent._learning_rate(150) == 0


@pytest.mark.parametrize("kind", ["discrete", "multi-discrete", "continuous"])
def test_log_prob_and_entropy_agree_with_torch(kind):
    from intrigue.agents.distributions import ActionHead

    spec = {
        "discrete": ActionSpec("discrete", sizes=(4,)),
        "multi-discrete": ActionSpec("multi-discrete", sizes=(3, 2)),
        "continuous": ActionSpec("continuous", low=(-1.0, -3.0), high=(1.0, 5.0)),
    }[kind]
    head = ActionHead(spec, 5, gain=1.0, log_std=-0.5)
    with torch.no_grad():
        parameters = head(torch.randn(7, 5, generator=torch.Generator().manual_seed(0)))
        sample = head.sample(parameters, explore=True, rng=torch.Generator().manual_seed(1))
        if kind == "continuous":
            known = torch.distributions.Normal(parameters, torch.full_like(parameters, math.exp(-0.5)))
            expected, entropy = known.log_prob(sample).sum(-1), known.entropy().sum(-1)
        else:
            parts = [torch.distributions.Categorical(logits=p) for p in parameters.split(spec.sizes, -1)]
            chosen = sample.reshape(7, -1)
            expected = torch.stack([p.log_prob(chosen[:, i]) for i, p in enumerate(parts)]).sum(0)
            entropy = torch.stack([p.entropy() for p in parts]).sum(0)
        torch.testing.assert_close(head.log_prob(parameters, sample), expected)
        torch.testing.assert_close(head.entropy(parameters), entropy)


def test_continuous_actions_fill_the_bounds():
    from intrigue.agents.distributions import ActionHead

    head = ActionHead(ActionSpec("continuous", low=(-1.0, 2.0), high=(1.0, 6.0)), 5, gain=1.0, log_std=0.0)
    action = head.action(torch.tensor([[0.0, 0.0], [-1.0, 1.0], [9.0, -9.0]]))
    torch.testing.assert_close(action, torch.tensor([[0.0, 4.0], [-1.0, 6.0], [1.0, 2.0]]))


def test_the_clipped_objective_by_hand():
    """One state, one action: the reported loss is −min(ρA, clip(ρ)A) before any step, where ρ = 1."""
    entry = AGENTS.get("ppo")
    agent = entry.cls(
        entry.config(hidden=4, minibatches=1, epochs=1, normalize_advantage=False, entropy_coef=0.0, gae_lambda=0.0),
        SPACES,
        ("total",),
    )
    batch = three_steps(terminated=(1, 1, 1))
    acted = agent.act(batch.obs[:, 0], batch.skill[:, 0], explore=True, rng=torch.Generator().manual_seed(0))
    extras = {key: value.unsqueeze(1) for key, value in acted.extras.items()}
    extras |= {"last_obs": torch.zeros(1, 1), "last_skill": torch.zeros(1, 0)}
    metrics = agent.update(batch, [Stream("total", REWARD, 1.0)], extras, rng=torch.Generator().manual_seed(0), step=0)
    advantage = REWARD - extras["value"].squeeze(-1)
    assert math.isclose(metrics["losses/policy_loss"], -float(advantage.mean()), rel_tol=1e-5)
    assert math.isclose(metrics["losses/value_loss"], 0.5 * float(advantage.square().mean()), rel_tol=1e-5)
    assert metrics["losses/clipfrac"] == 0


def test_minibatches_are_as_many_as_asked_for_and_skip_environments_that_were_only_reset(monkeypatch):
    entry = AGENTS.get("ppo")
    agent = entry.cls(entry.config(hidden=4, epochs=1, minibatches=4), SPACES, ("total",))
    rng = torch.Generator().manual_seed(0)
    lead, never = (1, 5), torch.zeros(1, 5, dtype=torch.bool)
    batch = Transitions(
        obs=torch.randn(*lead, 1), action=torch.zeros(lead, dtype=torch.int64), reward=torch.ones(lead),
        terminated=never, truncated=never, next_obs=torch.randn(*lead, 1), valid=~never, skill=torch.zeros(*lead, 0),
    )  # fmt: skip
    acted = agent.act(batch.obs[0], batch.skill[0], explore=True, rng=rng)
    extras = {name: values.unsqueeze(0) for name, values in acted.extras.items()}
    extras |= {"last_obs": batch.next_obs[0], "last_skill": batch.skill[0]}
    sizes, step = [], agent._step
    monkeypatch.setattr(type(step), "__call__", lambda self, *rows: sizes.append(len(rows[0])) or torch.zeros(5))
    for valid, wanted in (((1, 1, 1, 1, 1), 5), ((0, 0, 1, 0, 0), 1), ((0, 0, 0, 0, 0), 0)):
        sizes.clear()
        given = batch.replace(valid=torch.tensor([valid], dtype=torch.bool))
        metrics = agent.update(given, [Stream("total", REWARD[:1].expand(1, 5), 1.0)], extras, rng=rng, step=0)
        assert sum(sizes) == wanted and 0 not in sizes
        assert len(sizes) == 4 or wanted < 5
        assert all(math.isfinite(value) for value in metrics.values())
