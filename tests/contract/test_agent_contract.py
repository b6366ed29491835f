"""What every registered agent must hold to; a new agent file is picked up without an edit here."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from conftest import make_batch, make_obs, make_spaces, same_state
from intrigue.agents import AGENTS
from intrigue.agents.base import ReplayAgent
from intrigue.rng import seeded_construction
from intrigue.skills import SkillSpec
from intrigue.types import Stream

NAMES = AGENTS.names()
LEARNERS = [name for name in NAMES if name != "random"]
SKILLED = [name for name in LEARNERS if AGENTS.get(name).cls.takes_skills]
SMALL = {"hidden": 8, "features": 8, "minibatches": 2, "epochs": 2, "rollout_steps": 6}


def refusal(name, spaces):
    """Why this agent cannot act in these spaces, if it says so before it is built."""
    entry = AGENTS.get(name)
    return entry.cls.refusal(entry.config(), spaces) if issubclass(entry.cls, ReplayAgent) else None


def fitting(name, obs="vector"):
    """Spaces this agent can act in: classes, or numbers where it takes no classes. None where it refuses both."""
    kinds = [kind for kind in ("discrete", "continuous") if not refusal(name, make_spaces(obs, kind))]
    return make_spaces(obs, kinds[0]) if kinds else None


def build(name, spaces, streams=("total",), **options):
    entry = AGENTS.get(name)
    known = {each.name for each in dataclasses.fields(entry.config)}
    small = {key: value for key, value in SMALL.items() if key in known}
    with seeded_construction(0, "test"):
        return entry.cls(entry.config(**{**entry.defaults, **small, **options}), spaces, streams)


def rollout_of(agent, spaces, seed=0, skills=None):
    """A batch with what the agent would have noted while acting in it."""
    batch = make_batch(spaces, time=6, envs=4, seed=seed, skills=skills)
    rng = torch.Generator().manual_seed(seed)
    acted = [agent.act(batch.obs[t], batch.skill[t], explore=True, rng=rng) for t in range(6)]
    extras = {key: torch.stack([each.extras[key] for each in acted]) for key in acted[0].extras}
    batch = batch.replace(action=torch.stack([each.action for each in acted]))
    return batch, {**extras, "last_obs": batch.next_obs[-1], "last_skill": batch.skill[-1]}


def learn(agent, batch, extras, rewards, step=0, seed=0):
    streams = [Stream(name, reward, 1.0) for name, reward in rewards.items()]
    return agent.update(batch, streams, extras, rng=torch.Generator().manual_seed(seed), step=step)


@pytest.mark.parametrize("obs", ["vector", "pixels"])
@pytest.mark.parametrize("action", ["discrete", "multi-discrete", "continuous"])
@pytest.mark.parametrize("name", NAMES)
def test_acts_inside_the_space_and_learns(name, obs, action):
    spaces = make_spaces(obs, action)
    if reason := refusal(name, spaces):
        assert len(reason) > 20 and reason.endswith("."), "a refusal says why and what to use instead"
        return
    agent = build(name, spaces)
    seen = make_obs(spaces.obs, (4,), torch.Generator().manual_seed(1))
    acted = agent.act(seen, torch.zeros(len(seen), 0), explore=True, rng=torch.Generator().manual_seed(2)).action
    assert acted.shape == (4, *spaces.action.shape)
    if action == "continuous":
        low, high = torch.tensor(spaces.action.low), torch.tensor(spaces.action.high)
        assert ((acted >= low) & (acted <= high)).all()
    else:
        parts = acted.reshape(4, -1)
        assert all(((parts[:, i] >= 0) & (parts[:, i] < size)).all() for i, size in enumerate(spaces.action.sizes))
    batch, extras = rollout_of(agent, spaces)
    metrics = learn(agent, batch, extras, {"total": batch.reward})
    assert all(isinstance(value, float) for value in metrics.values())


@pytest.mark.parametrize("name", NAMES)
def test_acting_depends_on_the_generator_alone(name):
    spaces = fitting(name)
    agent = build(name, spaces)
    seen = make_obs(spaces.obs, (64,), torch.Generator().manual_seed(1))
    skill = torch.zeros(len(seen), 0)
    rngs = [torch.Generator().manual_seed(seed) for seed in (1, 1, 2)]
    draws = [agent.act(seen, skill, explore=True, rng=rng).action for rng in rngs]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


@pytest.mark.parametrize("name", LEARNERS)
def test_the_given_reward_matters(name):
    spaces = fitting(name)
    first, second, third = (build(name, spaces) for _ in range(3))
    batch, extras = rollout_of(first, spaces)
    learn(first, batch, extras, {"total": torch.zeros(6, 4)})
    learn(second, batch, extras, {"total": torch.rand(6, 4, generator=torch.Generator().manual_seed(5))})
    learn(third, batch, extras, {"total": torch.zeros(6, 4)})
    assert not same_state(first.train_state(), second.train_state()), "the reward never reached the learner"
    assert same_state(first.train_state(), third.train_state()), "the same reward must teach the same"


@pytest.mark.parametrize("name", LEARNERS)
def test_the_environments_own_reward_is_not_read(name):
    """Only the reward handed over counts; the one inside the batch is what the environment said."""
    spaces = fitting(name)
    first, second = build(name, spaces), build(name, spaces)
    batch, extras = rollout_of(first, spaces)
    learn(first, batch, extras, {"total": torch.ones(6, 4)})
    learn(second, batch.replace(reward=batch.reward + 100), extras, {"total": torch.ones(6, 4)})
    assert same_state(first.train_state(), second.train_state())


@pytest.mark.parametrize("name", NAMES)
def test_update_does_not_modify_its_inputs(name):
    spaces = fitting(name)
    agent = build(name, spaces)
    batch, extras = rollout_of(agent, spaces)
    reward = torch.rand(6, 4)
    kept = [dataclasses.asdict(batch), {key: value.clone() for key, value in extras.items()}, reward.clone()]
    kept[0] = {key: value.clone() for key, value in kept[0].items()}
    learn(agent, batch, extras, {"total": reward})
    assert all(torch.equal(getattr(batch, key), value) for key, value in kept[0].items())
    assert all(torch.equal(extras[key], value) for key, value in kept[1].items())
    assert torch.equal(reward, kept[2])


@pytest.mark.parametrize("name", LEARNERS)
def test_zero_learning_rate_changes_no_weight(name):
    spaces = fitting(name)
    agent = build(name, spaces, learning_rate=1e-30)
    before = {key: value.clone() for key, value in agent.named_parameters()}
    batch, extras = rollout_of(agent, spaces)
    learn(agent, batch, extras, {"total": batch.reward})
    for key, value in agent.named_parameters():
        torch.testing.assert_close(value, before[key], rtol=0, atol=1e-20)


@pytest.mark.parametrize("name", NAMES)
def test_state_round_trip_continues_identically(name):
    spaces = fitting(name)
    first, second = build(name, spaces), build(name, spaces)
    batch, extras = rollout_of(first, spaces)
    learn(first, batch, extras, {"total": batch.reward})
    second.load_train_state(first.train_state())
    for agent in (first, second):
        learn(agent, batch, extras, {"total": batch.reward}, seed=9)
    assert same_state(first.train_state(), second.train_state())


@pytest.mark.parametrize("name", [name for name in NAMES if AGENTS.get(name).cls.two_streams])
def test_two_streams_have_two_values(name):
    spaces = fitting(name)
    agent = build(name, spaces, streams=("extrinsic", "intrinsic"))
    batch, extras = rollout_of(agent, spaces)
    learn(agent, batch, extras, {"extrinsic": batch.reward, "intrinsic": torch.rand(6, 4)})


@pytest.mark.parametrize(
    ("name", "obs"), [(name, obs) for name in SKILLED for obs in ("vector", "pixels") if fitting(name, obs)]
)
def test_the_skill_decides_what_is_done_and_what_is_learned(name, obs):
    """A policy that takes skills acts differently under different ones, and learns for the one that was followed."""
    skills = SkillSpec("sphere", 5, 50)
    kinds = [kind for kind in ("continuous", "discrete") if not refusal(name, make_spaces(obs, kind))]
    spaces = dataclasses.replace(make_spaces(obs, kinds[0]), skill=5)
    agent = build(name, spaces)
    seen = make_obs(spaces.obs, (64,), torch.Generator().manual_seed(1))
    rng = torch.Generator().manual_seed(2)
    asked = [skills.draw(64, rng) for _ in range(2)]
    acts = [agent.act(seen, skill, explore=False, rng=rng).action for skill in (*asked, asked[0])]
    assert not torch.equal(acts[0], acts[1]), "the skill never reached the policy"
    assert torch.equal(acts[0], acts[2])
    batch, extras = rollout_of(agent, spaces, skills=skills)
    others = batch.replace(skill=skills.draw(24, rng).unflatten(0, (6, 4)))
    taught = [build(name, spaces) for _ in range(2)]
    for each, rows in zip(taught, (batch, others), strict=True):
        learn(each, rows, extras, {"total": batch.reward})
    assert not same_state(taught[0].train_state(), taught[1].train_state()), "the skill never reached the learner"
