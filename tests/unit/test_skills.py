"""Skills from their draw to the rows of a batch: kinds, lifetimes, late resets, and what Curiosity asks for."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as some

from conftest import GYM_ACTIONS, GYM_OBS, make_batch, make_spaces, same_state
from intrigue import Curiosity
from intrigue.agents.base import Agent
from intrigue.agents.random import RandomAgent, RandomConfig
from intrigue.envs.pool.config import PoolConfig
from intrigue.envs.pool.pool import make_pool
from intrigue.envs.pool.vector import VectorPool
from intrigue.envs.registry import ENVS
from intrigue.skills import SkillSampler, SkillSpec
from intrigue.training.rollout_collector import Collector
from intrigue.types import Acted
from places import PLUGINS

COUNTER = PLUGINS / "counter_env.py"
# Every draw of this kind is another one, so that a skill tells which draw it was.
TELLING = {"kind": "uniform", "width": 2}


@pytest.fixture(autouse=True)
def _counter_env():
    before = ENVS.extra_files()
    ENVS.add_file(COUNTER)
    yield
    ENVS._extra_files[:] = before


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def told_apart(skills):
    """Rows (T, K) as the numbers 0, 1, 2, … of the different skills, in order of appearance."""
    seen: dict[tuple[float, ...], int] = {}
    return [seen.setdefault(tuple(row.tolist()), len(seen)) for row in skills]


# Draws


def test_one_hot_skills_are_classes_drawn_evenly():
    drawn = SkillSpec("one-hot", 4, 50).draw(4000, seeded())
    assert drawn.shape == (4000, 4)
    assert torch.equal(drawn.sort(-1).values, torch.tensor([0.0, 0.0, 0.0, 1.0]).expand(4000, 4))
    assert ((drawn.mean(0) - 0.25).abs() < 0.03).all()


def test_sphere_skills_are_unit_vectors_of_every_direction():
    drawn = SkillSpec("sphere", 3, 5).draw(4000, seeded())
    torch.testing.assert_close(drawn.norm(dim=-1), torch.ones(4000))
    assert (drawn.mean(0).abs() < 0.05).all(), "no half of the sphere is preferred"
    # A uniform direction in R³ has uniform coordinates (Archimedes); normalised uniform numbers would not.
    assert abs(float(drawn.square().mean()) - 1 / 3) < 1e-5
    assert abs(float((drawn.abs() < 0.5).float().mean()) - 0.5) < 0.02


def test_uniform_skills_fill_the_unit_cube():
    drawn = SkillSpec("uniform", 8, 50).draw(4000, seeded())
    assert drawn.min() >= 0 and drawn.max() < 1
    assert ((drawn.mean(0) - 0.5).abs() < 0.03).all()
    correlation = torch.corrcoef(drawn.T) - torch.eye(8)
    assert correlation.abs().max() < 0.08, "entries are drawn apart"


@pytest.mark.parametrize("kind", ["one-hot", "sphere", "uniform"])
def test_the_seed_decides_the_draws(kind):
    spec = SkillSpec(kind, 5, 50)
    first, again, other = (spec.draw(64, seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.dtype == torch.float32


# Lifetimes


def test_a_skill_lasts_exactly_its_steps_or_to_the_episodes_end():
    course = SkillSampler(SkillSpec(**TELLING, every=3), 2, seeded())
    course.start()
    followed = []
    for t in range(9):
        followed.append(course.current)
        course.advance(torch.tensor([False, t == 1]))  # the second environment's episode ends with its second step
    followed = torch.stack(followed)
    assert told_apart(followed[:, 0]) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert told_apart(followed[:, 1]) == [0, 0, 1, 1, 1, 2, 2, 2, 3]
    assert not (followed[:, 0] == followed[:, 1]).any(), "environments have skills of their own"


def test_without_a_number_of_steps_a_skill_lasts_for_the_episode():
    course = SkillSampler(SkillSpec(**TELLING, every=0), 1, seeded())
    course.start()
    followed = []
    for t in range(200):
        followed.append(course.current[0])
        course.advance(torch.tensor([t == 99]))
    assert told_apart(followed) == [0] * 100 + [1] * 100


@settings(deadline=None, max_examples=60)
@given(
    every=some.integers(0, 5),
    ends=some.lists(some.tuples(some.booleans(), some.booleans()), min_size=1, max_size=25),
    late=some.booleans(),
)
def test_lifetimes_against_a_plain_count(every, ends, late):
    """`late`: as from environments that reset one step late, whose reset rows are no steps."""
    course = SkillSampler(SkillSpec(**TELLING, every=every), 2, seeded())
    course.start()
    number, age, pending = [0, 0], [0, 0], [False, False]
    for row in ends:
        valid = [not waiting for waiting in pending] if late else [True, True]
        ended = [end and counts for end, counts in zip(row, valid, strict=True)]
        before = course.current
        course.advance(torch.tensor(ended), torch.tensor(valid))
        for env in range(2):
            age[env] += valid[env]
            renewed = ended[env] or (every > 0 and age[env] == every)
            assert renewed == (not torch.equal(before[env], course.current[env]))
            age[env], number[env] = (0, number[env] + 1) if renewed else (age[env], number[env])
            pending[env] = ended[env]
        assert course.age.tolist() == age


def test_skills_of_one_environment_do_not_hang_on_the_others():
    runs = []
    for end in (3, 11):
        course = SkillSampler(SkillSpec(**TELLING, every=4), 2, seeded())
        course.start()
        skills = []
        for t in range(16):
            skills.append(course.current[0])
            course.advance(torch.tensor([False, t == end]))
        runs.append(torch.stack(skills))
    assert torch.equal(*runs)


def test_loading_shares_nothing_with_the_state_it_came_from():
    course = SkillSampler(SkillSpec(**TELLING, every=3), 2, seeded())
    course.start()
    course.advance(torch.tensor([False, False]))
    state = course.state_dict()
    other = SkillSampler(SkillSpec(**TELLING, every=3), 2, seeded(9))
    other.load_state_dict(state)
    other.advance(torch.tensor([False, True]))
    assert same_state(state, course.state_dict())


# Rows


class Listener(Agent):
    """Acts uniformly and notes the skill it was handed."""

    takes_skills = True

    def __init__(self, cfg, spaces, streams):
        super().__init__(cfg, spaces, streams)
        self.inner = RandomAgent(cfg, spaces, streams)

    def act(self, obs, skill, *, explore, rng):
        acted = self.inner.act(obs, skill, explore=explore, rng=rng)
        return Acted(acted.action, {"heard": skill})

    def update(self, batch, streams, extras, *, rng, step):
        return {}

    def train_state(self):
        return {}

    def load_train_state(self, state):
        pass


def listening(pool, every, steps=7):
    course = SkillSampler(SkillSpec(**TELLING, every=every), pool.num_envs, seeded(5))
    collector = Collector(pool, steps, torch.device("cpu"), course)
    collector.start()
    return collector, Listener(RandomConfig(steps), pool.spaces, ("total",)), seeded(1)


def fill(collector, agent, rng):
    while not collector.full:
        collector.step(agent, rng)
    return collector.take()


def test_a_row_holds_the_skill_its_action_was_taken_under():
    pool = make_pool("counter", {}, PoolConfig(num_envs=3, workers=0), seed=0, plugins=[COUNTER])
    collector, agent, rng = listening(pool, every=2)
    first, noted = fill(collector, agent, rng)
    second, later = fill(collector, agent, rng)
    pool.close()
    assert first.skill.shape == (7, 3, 2)
    assert torch.equal(first.skill, noted["heard"]) and torch.equal(second.skill, later["heard"])
    # Episodes of three steps, skills of two: two steps, then one to the episode's end.
    assert told_apart(torch.cat([first.skill, second.skill])[:, 1]) == [0, 0, 1, 2, 2, 3, 4, 4, 5, 6, 6, 7, 8, 8]
    assert torch.equal(noted["last_skill"], second.skill[0]), "the next rollout begins with it"
    assert not torch.equal(first.skill[:, 0], first.skill[:, 1])


class Short(gym.Env):
    """Two steps an episode."""

    observation_space = gym.spaces.Box(0, 9, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.full(1, self.time, np.float32), 0.0, self.time == 2, False, {}


def test_rows_that_are_no_steps_do_not_age_a_skill():
    """Gymnasium's late resets: two steps, then a row that is none; a skill of two steps lasts for the episode."""
    vector = SyncVectorEnv([Short, Short], autoreset_mode=AutoresetMode.NEXT_STEP)
    collector, agent, rng = listening(VectorPool("gym/Short", vector, seed=0), every=2, steps=9)
    batch, _ = fill(collector, agent, rng)
    vector.close()
    assert batch.valid[:, 0].tolist() == [True, True, False] * 3
    # The reset row already stands under the skill of the episode it begins.
    assert told_apart(batch.skill[:, 0]) == [0, 0, 1, 1, 1, 2, 2, 2, 3]


def test_environments_that_begin_anew_get_new_skills():
    def vector():
        return VectorPool("gym/Short", SyncVectorEnv([Short], autoreset_mode=AutoresetMode.SAME_STEP), seed=0)

    collector, agent, rng = listening(vector(), every=9)
    collector.step(agent, rng)
    state, before = collector.state_dict(), collector.skills.current
    again, _, _ = listening(vector(), every=9)
    again.load_state_dict(state)
    assert again.pool.restarted == 1
    assert not torch.equal(again.skills.current, before)
    assert again.skills.age.tolist() == [0]


# Curiosity by hand


def hand_over(curiosity, **skill):
    batch = make_batch(make_spaces())
    fields = ("obs", "action", "reward", "terminated", "truncated", "next_obs")
    return curiosity.step(**{name: getattr(batch, name) for name in fields}, **skill)


def test_curiosity_says_which_skill_it_wants():
    curiosity = Curiosity("diayn", GYM_OBS["vector"], GYM_ACTIONS["discrete"], skills=3, hidden=4)
    before = curiosity.state_dict()
    with pytest.raises(ValueError, match=r"3 numbers \(one-hot\).*there are none.*skill=.*SkillSampler"):
        hand_over(curiosity)
    with pytest.raises(ValueError, match=r"3 numbers \(one-hot\).*each has 2"):
        hand_over(curiosity, skill=np.zeros((6, 4, 2)))
    with pytest.raises(ValueError, match=r"skill is \(4, 3\), expected \(6, 4, 3\)"):
        hand_over(curiosity, skill=np.zeros((4, 3)))
    assert same_state(before, curiosity.state_dict())
    step = hand_over(curiosity, skill=curiosity.skills.draw(24, seeded()).unflatten(0, (6, 4)).numpy())
    assert step.reward.shape == (6, 4)


def test_curiosity_without_skills_takes_none():
    curiosity = Curiosity("rnd", GYM_OBS["vector"], GYM_ACTIONS["discrete"], feature_dim=4, hidden=4)
    with pytest.raises(ValueError, match=r"knows no skills\. Leave it out"):
        hand_over(curiosity, skill=np.zeros((6, 4, 2)))
    assert hand_over(curiosity).reward.shape == (6, 4)
