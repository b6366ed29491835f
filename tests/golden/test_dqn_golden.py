"""One DQN update against float64 NumPy: targets, loss, gradient, clipping, Adam; and small cases by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from intrigue.agents import AGENTS
from intrigue.rng import seeded_construction
from intrigue.spaces import ActionSpec, ObsSpec, Spaces
from intrigue.types import Stream, Transitions

SPACES = Spaces(ObsSpec("vector", (3,)), ActionSpec("discrete", sizes=(4,)))
STEPS, COLUMNS = 3, 6
# One window that runs through, one that terminates and one that is truncated inside, one that terminates at its last
# step, one truncated there, and one that is no window at all.
TERMINATED = np.array([[0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0]], dtype=bool)
TRUNCATED = np.array([[0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 1, 0]], dtype=bool)
VALID = np.array([[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 0], [1, 0, 0, 1, 1, 0]], dtype=bool)
TAKEN = [3, 2, 2, 3, 3, 0]


def dqn(**options):
    entry = AGENTS.get("dqn")
    with seeded_construction(3, "test"):
        agent = entry.cls(entry.config(hidden=5, discount=0.7, **options), SPACES, ("total",)).double()
        with torch.no_grad():  # a target that is not a copy, so that the two cannot be confused
            for weight in agent.target.parameters():
                weight.add_(torch.randn_like(weight) * 0.3)
    return agent


def window(seed=0):
    rng = np.random.default_rng(seed)
    fields = {
        "obs": rng.normal(size=(STEPS, COLUMNS, 3)),
        "action": rng.integers(0, 4, (STEPS, COLUMNS)),
        "next_obs": rng.normal(size=(STEPS, COLUMNS, 3)),
        "reward": np.full((STEPS, COLUMNS), 1e6),  # what the environment said must not be read
    }
    reward = rng.normal(size=(STEPS, COLUMNS)) * 3
    flags = {"terminated": TERMINATED, "truncated": TRUNCATED, "valid": VALID, "skill": np.zeros((STEPS, COLUMNS, 0))}
    return Transitions(**{name: torch.from_numpy(each) for name, each in {**fields, **flags}.items()}), reward


def layers(network):
    """Weights and biases in order, as NumPy."""
    return [(layer.weight.detach().numpy().copy(), layer.bias.detach().numpy().copy())
            for layer in network.modules() if isinstance(layer, torch.nn.Linear)]  # fmt: skip


def forward(parameters, x):
    """All layers' inputs and the values: ReLU after every layer but the last."""
    inputs = []
    for index, (weight, bias) in enumerate(parameters):
        inputs.append(x)
        x = x @ weight.T + bias
        if index < len(parameters) - 1:
            x = np.maximum(x, 0)
    return inputs, x


def expected_targets(agent, batch, reward, double):
    online, target = layers(agent.online), layers(agent.target)
    out = np.zeros(COLUMNS)
    for column, taken in enumerate(TAKEN):
        if not taken:
            continue
        total = sum(0.7**t * reward[t, column] for t in range(taken))
        if not TERMINATED[taken - 1, column]:
            state = batch.next_obs[taken - 1, column].numpy()[None]
            _, values = forward(target, state)
            _, chooser = forward(online if double else target, state)
            total += 0.7**taken * values[0, chooser[0].argmax()]
        out[column] = total
    return out


def expected_update(agent, batch, reward, weight, double=True):
    """Loss, values of the actions taken, and all weights after one step of Adam."""
    online = layers(agent.online)
    targets = expected_targets(agent, batch, reward, double)
    counted = np.array(TAKEN) > 0
    inputs, values = forward(online, batch.obs[0].numpy())
    rows = np.arange(COLUMNS)
    chosen = values[rows, batch.action[0].numpy()]
    error = np.where(counted, chosen - targets, 0.0)
    huber = np.where(np.abs(error) <= 1, 0.5 * error**2, np.abs(error) - 0.5)
    loss = (weight * huber).sum() / counted.sum()
    slope = np.zeros_like(values)
    slope[rows, batch.action[0].numpy()] = weight * np.clip(error, -1, 1) / counted.sum()
    gradients = []
    for index in range(len(online) - 1, -1, -1):
        gradients = [(slope.T @ inputs[index], slope.sum(0)), *gradients]
        slope = (slope @ online[index][0]) * (inputs[index] > 0)
    return loss, chosen, error, gradients


def adam(value, gradient, rate=1e-2, eps=0.1):
    """The first step of Adam: both moments' corrections cancel their decay."""
    return value - rate * gradient / (np.sqrt(gradient**2) + eps)


@pytest.mark.parametrize("double", [True, False])
def test_targets(double):
    agent = dqn(double=double)
    batch, reward = window()
    target, counts = agent.targets(batch, torch.from_numpy(reward))
    known = counts.numpy()
    assert known.tolist() == [True, True, True, True, True, False]
    expected = expected_targets(agent, batch, reward, double)
    np.testing.assert_allclose(target.numpy()[known], expected[known], rtol=1e-12)
    other = expected_targets(agent, batch, reward, not double)
    assert not np.allclose(expected[known], other[known]), "the case must tell the two kinds of target apart"


@pytest.mark.parametrize("clip", [0.0, 0.05])
@pytest.mark.parametrize("weighted", [False, True])
def test_one_update(clip, weighted):
    # A large ε, or the first step of Adam would be blind to the gradients' length and so to clipping.
    agent = dqn(learning_rate=1e-2, max_grad_norm=clip, adam_eps=0.1)
    batch, reward = window(seed=1)
    weight = np.array([1.0, 0.5, 0.25, 0.9, 0.1, 0.7]) if weighted else np.ones(COLUMNS)
    loss, chosen, error, gradients = expected_update(agent, batch, reward, weight)
    assert (np.abs(error) > 1).any() and (np.abs(error[:5]) < 1).any(), "both branches of the loss are used"
    norm = math.sqrt(sum((part**2).sum() for pair in gradients for part in pair))
    factor = min(1.0, clip / (norm + 1e-6)) if clip else 1.0
    before, frozen = layers(agent.online), layers(agent.target)
    extras = {"weight": torch.from_numpy(weight)} if weighted else {}
    metrics = agent.update(
        batch, [Stream("total", torch.from_numpy(reward), 1.0)], extras, rng=torch.Generator(), step=500
    )
    assert metrics["losses/td_loss"] == pytest.approx(loss, rel=1e-10)
    assert metrics["losses/q_values"] == pytest.approx(chosen.mean(), rel=1e-10)
    np.testing.assert_allclose(agent.errors.numpy(), error, rtol=1e-10, atol=1e-12)
    for (weight_before, bias_before), (weight_slope, bias_slope), (got_weight, got_bias) in zip(
        before, gradients, layers(agent.online), strict=True
    ):
        np.testing.assert_allclose(got_weight, adam(weight_before, factor * weight_slope), rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(got_bias, adam(bias_before, factor * bias_slope), rtol=1e-7, atol=1e-9)
    for (one, _), (two, _) in zip(frozen, layers(agent.target), strict=True):
        np.testing.assert_array_equal(one, two)


def test_the_target_network_is_copied_when_a_multiple_of_its_steps_is_passed():
    agent = dqn(target_every=100)
    batch, reward = window()
    streams = [Stream("total", torch.from_numpy(reward), 1.0)]
    copied = []
    for step in (40, 80, 120, 160, 199, 200, 204):
        agent.update(batch, streams, {}, rng=torch.Generator(), step=step)
        same = all(torch.equal(one, two) for one, two in zip(agent.online.parameters(), agent.target.parameters()))  # noqa: B905
        copied.append(same)
    assert copied == [False, False, True, False, False, True, False]


def test_epsilon_falls_in_a_line_and_stays():
    agent = dqn(epsilon_start=0.9, epsilon_end=0.1, epsilon_steps=400)
    batch, reward = window()
    shown = []
    for step in (100, 200, 400, 900):
        metrics = agent.update(
            batch, [Stream("total", torch.from_numpy(reward), 1.0)], {}, rng=torch.Generator(), step=step
        )
        shown.append(metrics["charts/epsilon"])
    assert shown == pytest.approx([0.7, 0.5, 0.1, 0.1])
    assert agent.epsilon.item() == pytest.approx(0.1)


def test_who_only_plays_has_the_last_epsilon_however_far_the_run_is():
    for start, end, wanted in ((1.0, 0.1, 0.1), (0.0, 0.1, 0.0)):
        agent = dqn(epsilon_start=start, epsilon_end=end)
        agent.settle()
        assert float(agent.epsilon) == pytest.approx(wanted)


def test_random_actions_are_as_frequent_as_epsilon_says():
    agent = dqn(epsilon_start=0.4)
    obs, skill = torch.zeros(40_000, 3, dtype=torch.float64), torch.zeros(40_000, 0, dtype=torch.float64)
    best = int(agent.act(obs[:1], skill[:1], explore=False, rng=torch.Generator()).action)
    acted = agent.act(obs, skill, explore=True, rng=torch.Generator().manual_seed(0)).action
    counts = torch.bincount(acted, minlength=4) / 40_000
    expected = torch.full((4,), 0.1)
    expected[best] += 0.6
    torch.testing.assert_close(counts, expected, atol=0.01, rtol=0)
