"""One DDPG update against float64 NumPy: target, both losses, every gradient, Adam, the target's pace; small cases."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from intrigue.agents import AGENTS
from intrigue.rng import seeded_construction
from intrigue.spaces import ActionSpec, ObsSpec, Spaces
from intrigue.types import Stream, Transitions

ROWS, STATE, SKILL, ACTION, HIDDEN = 7, 3, 2, 2, 5
# Bounds that are not ±1, nor alike, so that a forgotten scale shows.
SPACES = Spaces(ObsSpec("vector", (STATE,)), ActionSpec("continuous", low=(-1.0, -3.0), high=(1.0, 1.0)), skill=SKILL)
MIDDLE, REACH = np.array([0.0, -1.0]), np.array([1.0, 2.0])
RATE, EPS, TAU = 1e-2, 0.1, 0.3


def ddpg(**options):
    """A small agent with random biases and gains, and a target that is not a copy of its critic."""
    entry = AGENTS.get("ddpg")
    cfg = entry.config(hidden=HIDDEN, learning_rate=RATE, adam_eps=EPS, target_rate=TAU, discount=0.9, **options)
    with seeded_construction(3, "test"):
        agent = entry.cls(cfg, SPACES, ("total",)).double()
        with torch.no_grad():
            for weight in agent.parameters():
                weight.add_(torch.randn_like(weight) * 0.7)
            for weight in agent.actor.policy.parameters():
                weight.mul_(4)  # means near the bounds, which noise then crosses
    return agent


def rows(seed=0):
    rng = np.random.default_rng(seed)
    unit = rng.uniform(-1, 1, (1, ROWS, ACTION))
    terminated = np.zeros((1, ROWS), dtype=bool)
    terminated[0, 2] = True
    valid = np.ones((1, ROWS), dtype=bool)
    valid[0, 5] = False
    fields = {
        "obs": rng.normal(size=(1, ROWS, STATE)),
        "action": MIDDLE + REACH * unit,
        "reward": np.full((1, ROWS), 1e6),  # what the environment said must not be read
        "terminated": terminated,
        "truncated": ~terminated,  # a truncated episode still has a value ahead
        "next_obs": rng.normal(size=(1, ROWS, STATE)),
        "valid": valid,
        "skill": rng.normal(size=(1, ROWS, SKILL)),
    }
    reward = rng.normal(size=(1, ROWS))
    discount = 0.9 ** rng.integers(1, 4, (1, ROWS)).astype(float)
    return Transitions(**{name: torch.from_numpy(each) for name, each in fields.items()}), reward, discount


def arrays(module):
    return [weight.detach().numpy().copy() for weight in module.parameters()]


def heads_of(critic):
    """Weights and biases of each head's two layers, as a linear layer has them."""
    layers = [(layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in (critic.hidden, critic.out)]
    return [[each for weight, bias in layers for each in (weight[i].T.copy(), bias[i, 0].copy())] for i in range(2)]


class Layered:
    """[Linear, LayerNorm, tanh, Linear, ReLU, Linear] by hand, forward and backward."""

    def __init__(self, trunk, head):
        self.trunk, self.head = trunk, head

    def forward(self, x):
        w, b, gain, shift = self.trunk
        wide = x @ w.T + b
        self.deviation = np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
        self.normal = (wide - wide.mean(-1, keepdims=True)) / self.deviation
        self.seen = np.tanh(self.normal * gain + shift)
        w1, b1, w2, b2 = self.head
        self.x, self.hidden = x, np.maximum(self.seen @ w1.T + b1, 0)
        return self.hidden @ w2.T + b2

    def backward(self, slope):
        """Gradients of trunk, head and input, from the slope of the output."""
        w1, _, w2, _ = self.head
        inner = (slope @ w2) * (self.hidden > 0)
        head = [inner.T @ self.seen, inner.sum(0), slope.T @ self.hidden, slope.sum(0)]
        w, _, gain, _ = self.trunk
        bent = (inner @ w1) * (1 - self.seen**2)
        trunk_gain, trunk_shift = (bent * self.normal).sum(0), bent.sum(0)
        normal = bent * gain
        wide = normal - normal.mean(-1, keepdims=True)
        wide = (wide - self.normal * (normal * self.normal).mean(-1, keepdims=True)) / self.deviation
        return [wide.T @ self.x, wide.sum(0), trunk_gain, trunk_shift], head, wide @ w


def values(critic, x, skill, successor):
    """Both heads' passes, and both values (2, B)."""
    passes = [Layered(arrays(critic.trunk), head) for head in heads_of(critic)]
    outs = [each.forward(x) for each in passes]
    return passes, np.stack([(out * skill).sum(-1) if successor else out[:, 0] for out in outs])


def noisy(actor, obs_skill, noise, sigma=0.2, clip=0.3):
    """The actor's pass, its tanh output, and the clamped action with clipped noise."""
    layers = Layered(arrays(actor.trunk), arrays(actor.policy))
    mean = np.tanh(layers.forward(obs_skill))
    return layers, mean, np.clip(mean + np.clip(sigma * noise, -clip, clip), -1 + 1e-6, 1 - 1e-6)


def first_adam(value, gradient):
    """The first step of Adam: both moments' corrections cancel their decay."""
    return value - RATE * gradient / (np.abs(gradient) + EPS)


def stepped(before, gradients):
    return [first_adam(value, slope) for value, slope in zip(before, gradients, strict=True)]


def same(module, wanted):
    given = module if isinstance(module, list) else arrays(module)
    for got, value in zip(given, wanted, strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("critic", ["plain", "successor"])
def test_one_update(critic):
    agent, successor = ddpg(critic=critic), critic == "successor"
    batch, reward, discount = rows()
    noise = torch.randn((2, ROWS, ACTION), generator=torch.Generator().manual_seed(4), dtype=torch.float64).numpy()
    noise_used = np.abs(0.2 * noise)
    assert (noise_used > 0.3).any() and (noise_used < 0.3).any(), "the clip must matter, and not always"
    obs, next_obs, skill = (getattr(batch, name)[0].numpy() for name in ("obs", "next_obs", "skill"))
    unit = (batch.action[0].numpy() - MIDDLE) / REACH
    counts = batch.valid[0].numpy() / batch.valid.sum().item()
    here, there = np.concatenate([obs, skill], 1), np.concatenate([next_obs, skill], 1)

    _, _, ahead = noisy(agent.actor, there, noise[0])
    _, later = values(agent.target, np.concatenate([there, ahead], 1), skill, successor)
    wanted = reward[0] + discount[0] * ~batch.terminated[0].numpy() * later.min(0)
    passes, both = values(agent.critic, np.concatenate([here, unit], 1), skill, successor)
    critic_loss = ((both - wanted) ** 2 * counts).sum()
    trunks, heads = [], []
    for layers, each in zip(passes, both, strict=True):
        slope = (2 * (each - wanted) * counts)[:, None]
        of_trunk, of_head, _ = layers.backward(slope * skill if successor else slope)
        trunks, heads = [*trunks, of_trunk], [*heads, of_head]
    trunk = [one + two for one, two in zip(*trunks, strict=True)]  # both values are learned through one trunk
    new_trunk = stepped(arrays(agent.critic.trunk), trunk)
    new_heads = [stepped(h, g) for h, g in zip(heads_of(agent.critic), heads, strict=True)]
    old_target = [arrays(agent.target.trunk), *heads_of(agent.target)]

    layers, mean, action = noisy(agent.actor, here, noise[1])
    assert (np.abs(action) == 1 - 1e-6).any(), "the clamp must matter"
    judges = [Layered(new_trunk, head) for head in new_heads]  # the critic as it has become
    judged = [judge.forward(np.concatenate([here, action], 1)) for judge in judges]
    judged = np.stack([(out * skill).sum(-1) if successor else out[:, 0] for out in judged])
    smaller = judged.argmin(0)
    assert set(smaller) == {0, 1}, "each head must be the smaller one somewhere"
    by_action = np.zeros((ROWS, ACTION))
    for index, judge in enumerate(judges):
        slope = (-counts * (smaller == index))[:, None]
        by_action += judge.backward(slope * skill if successor else slope)[2][:, -ACTION:]
    of_trunk, of_head, _ = layers.backward(by_action * (1 - mean**2))  # straight through the clamp
    new_actor = [stepped(arrays(agent.actor.trunk), of_trunk), stepped(arrays(agent.actor.policy), of_head)]

    metrics = agent.update(
        batch,
        [Stream("total", torch.from_numpy(reward), 1.0)],
        {"discount": torch.from_numpy(discount)},
        rng=torch.Generator().manual_seed(4),
        step=0,
    )
    assert metrics["losses/critic_loss"] == pytest.approx(critic_loss, rel=1e-10)
    assert metrics["losses/q_values"] == pytest.approx((both * counts).sum() / 2, rel=1e-10)
    assert metrics["losses/actor_loss"] == pytest.approx(-(judged.min(0) * counts).sum(), rel=1e-10)
    same(agent.critic.trunk, new_trunk)
    for head, wanted in zip(heads_of(agent.critic), new_heads, strict=True):
        same(head, wanted)
    same(agent.actor.trunk, new_actor[0])
    same(agent.actor.policy, new_actor[1])
    followed = [arrays(agent.target.trunk), *heads_of(agent.target)]
    for found, old, new in zip(followed, old_target, [new_trunk, *new_heads], strict=True):
        same(found, [(1 - TAU) * was + TAU * now for was, now in zip(old, new, strict=True)])


def test_without_a_discount_given_it_is_gammas():
    first, second = ddpg(), ddpg()
    batch, reward, _ = rows()
    streams = [Stream("total", torch.from_numpy(reward), 1.0)]
    given = {"discount": torch.full((1, ROWS), 0.9, dtype=torch.float64)}
    for agent, extras in ((first, {}), (second, given)):
        agent.update(batch, streams, extras, rng=torch.Generator().manual_seed(0), step=0)
    for one, two in zip(first.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(one, two)


def test_acting_noise_is_not_clipped_and_has_the_stated_spread():
    agent = ddpg()
    with torch.no_grad():
        for weight in agent.actor.policy.parameters():
            weight.zero_()  # the mean action is the middle
    obs, skill = torch.zeros(50_000, STATE).double(), torch.zeros(50_000, SKILL).double()
    acted = agent.act(obs, skill, explore=True, rng=torch.Generator().manual_seed(0)).action.numpy()
    unit = (acted - MIDDLE) / REACH
    np.testing.assert_allclose(unit.std(0), 0.2, rtol=0.02)
    np.testing.assert_allclose(unit.mean(0), 0, atol=0.005)
    assert (np.abs(unit) > 0.31).any()
    greedy = agent.act(obs[:2], skill[:2], explore=False, rng=torch.Generator()).action.numpy()
    np.testing.assert_array_equal(greedy, [MIDDLE, MIDDLE])


def test_the_networks_have_urlbs_sizes_and_start():
    """Walker: 24 numbers and 6 actions; orthogonal weights, zero biases, a target equal to the critic."""
    entry = AGENTS.get("ddpg")
    spaces = Spaces(ObsSpec("vector", (24,)), ActionSpec("continuous", low=(-1.0,) * 6, high=(1.0,) * 6))
    with seeded_construction(0, "test"):
        agent = entry.cls(entry.config(), spaces, ("total",))
    wide = 1024
    actor = (24 + 1) * wide + 2 * wide + (wide + 1) * wide + (wide + 1) * 6
    critic = (30 + 1) * wide + 2 * wide + 2 * ((wide + 1) * wide + wide + 1)
    assert sum(weight.numel() for weight in agent.actor.parameters()) == actor
    assert sum(weight.numel() for weight in agent.critic.parameters()) == critic
    weight = agent.actor.trunk[0].weight.detach()
    torch.testing.assert_close(weight.T @ weight, torch.eye(24), atol=1e-5, rtol=0)
    assert all((bias == 0).all() for name, bias in agent.named_parameters() if name.endswith("0.bias"))
    for one, two in zip(agent.critic.parameters(), agent.target.parameters(), strict=True):
        assert torch.equal(one, two) and not two.requires_grad


def test_defaults_are_urlbs():
    plan = AGENTS.get("ddpg")
    cfg = dataclasses.asdict(plan.config())
    assert (cfg["capacity"], cfg["batch"], cfg["learning_starts"], cfg["train_every"]) == (10**6, 1024, 4000, 2)
    assert (cfg["noise"], cfg["noise_clip"], cfg["target_rate"], cfg["learning_rate"]) == (0.2, 0.3, 0.01, 1e-4)
    assert (cfg["n_step"], cfg["discount"], cfg["hidden"]) == (1, 0.99, 1024)
    agent = ddpg(n_step=3)
    assert (agent.plan.window, agent.plan.order, agent.plan.steps) == ("tuple", "episodes", 3)


def test_gradients_pass_the_clamp_as_if_it_were_not_there():
    """0.9 and 0.3 of clipped noise are cut to just below 1, and still have slope 1."""
    unit = torch.tensor([[0.9, -0.95, 0.2, 0.9]], dtype=torch.float64, requires_grad=True)
    noise = torch.tensor([[5.0, -5.0, 0.5, -5.0]], dtype=torch.float64)
    action = ddpg()._noisy(unit, noise)
    np.testing.assert_allclose(action.detach().numpy(), [[1 - 1e-6, -1 + 1e-6, 0.3, 0.6]], rtol=1e-12)
    (action * torch.tensor([[1.0, 2.0, 3.0, 4.0]])).sum().backward()
    assert unit.grad.tolist() == [[1.0, 2.0, 3.0, 4.0]]
