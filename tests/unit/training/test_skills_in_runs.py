"""Skills in a learner and in a run: which skill a value is asked for, resume, evaluation, refused pairs."""

from __future__ import annotations

import pytest
import torch

from conftest import TINY
from intrigue.agents.registry import AGENTS
from intrigue.cli import main
from intrigue.config.run import resolve
from intrigue.errors import ConfigError
from intrigue.run import checkpoint
from intrigue.run.driver import resume, start
from intrigue.run.folder import open_run
from intrigue.run.play import play
from intrigue.skills import SkillSpec
from intrigue.spaces import ActionSpec, ObsSpec, Spaces
from intrigue.training.build import build
from intrigue.types import Stream, Transitions
from places import PLUGINS

DEAF = PLUGINS / "deaf_agent.py"


@pytest.fixture(autouse=True)
def _deaf_agent():
    before = AGENTS.extra_files()
    AGENTS.add_file(DEAF)
    yield
    AGENTS._extra_files[:] = before


# Learners


def hand_made(skill, terminated=(0, 0, 0), truncated=(0, 0, 0), next_obs=(2.0, 3.0, 4.0), last_skill=0.0):
    """States 1, 2, 3 of one environment; V(s, z) = s + 10 z."""

    def column(*values, dtype=torch.float32):
        return torch.tensor(values, dtype=dtype).unsqueeze(-1)

    states, skills = column(1.0, 2.0, 3.0).unsqueeze(-1), column(*skill).unsqueeze(-1)
    batch = Transitions(
        obs=states, action=torch.zeros(3, 1, dtype=torch.int64), reward=torch.zeros(3, 1),
        terminated=column(*terminated, dtype=torch.bool), truncated=column(*truncated, dtype=torch.bool),
        next_obs=column(*next_obs).unsqueeze(-1), valid=torch.ones(3, 1, dtype=torch.bool), skill=skills,
    )  # fmt: skip
    last = {"last_obs": torch.tensor([[4.0]]), "last_skill": torch.tensor([[last_skill]])}
    return batch, {"value": states + 10 * skills, **last}


def ppo_advantages(batch, extras, **options):
    entry = AGENTS.get("ppo")
    spaces = Spaces(ObsSpec("vector", (1,)), ActionSpec("discrete", sizes=(2,)), skill=1)
    cfg = entry.config(hidden=4, minibatches=1, normalize_advantage=False, discount=0.5, gae_lambda=0.5, **options)
    agent = entry.cls(cfg, spaces, ("total",))
    agent.nets.value = lambda obs, skill: obs + 10 * skill
    reward = torch.tensor([[1.0], [0.0], [2.0]])
    return agent.advantages(batch, [Stream("total", reward, 1.0)], extras)[0].squeeze(-1).tolist()


def test_values_within_one_skill():
    # δ = [1 + 6 − 11, 0 + 6.5 − 12, 2 + 7 − 13] = [−4, −5.5, −4]
    assert ppo_advantages(*hand_made((1.0, 1.0, 1.0), last_skill=1.0)) == [-4 - 6.5 / 4, -5.5 - 4 / 4, -4]


def test_a_new_skill_cuts_the_chain_and_the_old_one_is_valued_on():
    # The switch after the second step: its successor is V(3, old) = 3, not the 13 of the new skill.
    # δ = [1 + 1 − 1, 0 + 1.5 − 2, 2 + 7 − 13] = [1, −.5, −4], the chain cut after the second
    assert ppo_advantages(*hand_made((0.0, 0.0, 1.0), last_skill=1.0)) == [1 - 0.5 / 4, -0.5, -4]


def test_a_switch_at_the_rollouts_end_is_valued_by_the_skill_that_was_followed():
    # V(4, old) = 4, not 14: δ = [1, −.5, 2 + 2 − 3]
    same = ppo_advantages(*hand_made((0.0, 0.0, 0.0), last_skill=0.0))
    assert ppo_advantages(*hand_made((0.0, 0.0, 0.0), last_skill=1.0)) == same == [0.9375, -0.25, 1.0]


def test_an_episode_that_ends_with_a_new_skill_is_valued_by_the_old_one():
    # Truncated after the second step, true successor 7: δ = [1, 0 + 3.5 − 2, −4]
    batch, extras = hand_made((0.0, 0.0, 1.0), truncated=(0, 1, 0), next_obs=(2.0, 7.0, 4.0), last_skill=1.0)
    assert ppo_advantages(batch, extras) == [1 + 1.5 / 4, 1.5, -4]


def test_endless_returns_flow_through_skills_as_through_resets():
    # δ = [1, 0 + 6.5 − 2, 2 + 2 − 13], nothing cut; the last looks at V(4, 0), of the skill that comes
    batch, extras = hand_made((0.0, 0.0, 1.0), last_skill=0.0)
    assert ppo_advantages(batch, extras, ignore_done=True) == [1 + (4.5 - 9 / 4) / 4, 4.5 - 9 / 4, -9]


def test_ppo_learns_to_do_what_it_is_asked():
    """One state, three actions, three skills: the reward is for the action of the skill's number."""
    entry, rng = AGENTS.get("ppo"), torch.Generator().manual_seed(0)
    spaces = Spaces(ObsSpec("vector", (1,)), ActionSpec("discrete", sizes=(3,)), skill=3)
    torch.manual_seed(0)
    agent = entry.cls(entry.config(hidden=16, learning_rate=0.01, epochs=2, minibatches=2), spaces, ("total",))
    spec = SkillSpec("one-hot", 3, 1)
    for _ in range(30):
        skill = spec.draw(64, rng)
        obs, now = torch.zeros(64, 1), torch.zeros(1, 64, dtype=torch.bool)
        acted = agent.act(obs, skill, explore=True, rng=rng)
        batch = Transitions(
            obs=obs.unsqueeze(0), action=acted.action.unsqueeze(0), reward=torch.zeros(1, 64), terminated=~now,
            truncated=now, next_obs=obs.unsqueeze(0), valid=~now, skill=skill.unsqueeze(0),
        )  # fmt: skip
        extras = {key: value.unsqueeze(0) for key, value in acted.extras.items()}
        extras |= {"last_obs": obs, "last_skill": spec.draw(64, rng)}
        given = (acted.action == skill.argmax(-1)).float().unsqueeze(0)
        agent.update(batch, [Stream("total", given, 1.0)], extras, rng=rng, step=0)
    greedy = agent.act(torch.zeros(3, 1), torch.eye(3), explore=False, rng=rng).action
    assert greedy.tolist() == [0, 1, 2]


# Runs

SKILLED = {
    **{key: value for key, value in TINY.items() if key != "reward.blocks"},
    "reward": "diayn",
    "reward.skills": 3,
    "reward.every": 7,
}


def test_resume_in_the_middle_of_a_skill_is_bit_identical(tmp_path):
    calm = start(resolve(SKILLED), out=tmp_path / "calm", quiet=True)
    # 25 steps of each environment: nine into the second rollout, four into a skill.
    start(resolve(SKILLED, {"steps": 100}), out=tmp_path / "cut", quiet=True)
    saved = checkpoint.load(open_run(tmp_path / "cut").checkpoints, on_skip=lambda text: None)
    assert saved.state["collector"]["cursor"] == 9
    assert max(saved.state["collector"]["skills"]["age"].tolist()) > 0
    resume(tmp_path / "cut", steps=640, quiet=True)
    digests = [checkpoint.digest(open_run(path).checkpoints) for path in (calm.path, tmp_path / "cut")]
    assert digests[0] == digests[1]


def test_eval_plays_a_run_with_skills(tmp_path, capsys, monkeypatch):
    start(resolve(SKILLED, {"steps": 128}), out=tmp_path / "run", quiet=True)
    assert main(["eval", str(tmp_path / "run"), "--episodes", "2"]) == 0
    assert capsys.readouterr().out.startswith("2 episodes: return")
    folder, heard = open_run(tmp_path / "run"), []
    act = AGENTS.get("ppo").cls.act
    monkeypatch.setattr(
        AGENTS.get("ppo").cls, "act",
        lambda self, obs, skill, **others: (heard.append(skill[0]), act(self, obs, skill, **others))[1],
    )  # fmt: skip
    one, two = (play(folder, 2, seed=4, greedy=False, film=False) for _ in range(2))
    assert one == two, "the seed decides the episodes and the skills"
    skills = torch.stack(heard[: one.lengths[0]])
    assert skills.shape == (40, 3), "a maze of 40 steps, asked for one of three skills"
    blocks = skills.split(7)
    assert all((block == block[0]).all() for block in blocks), "each lasts seven steps"
    assert len({tuple(block[0].tolist()) for block in blocks}) > 1


def test_an_agent_without_skills_is_refused_and_nothing_is_created(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for more in ([], ["--dry-run"]):
        code = main(["train", "--reward", "diayn", "--agent", "deaf", "--steps", "64", "--seed", "x", *more])
        told = capsys.readouterr().err
        assert code == 2
        assert "'diayn' asks the policy for skills, which 'deaf' does not take." in told
        assert "Use --agent ddpg or --agent dqn or --agent ppo" in told
        assert "run.seed" in told, "all problems at once"
        assert list(tmp_path.iterdir()) == []


def test_the_pair_is_checked_again_where_things_are_built():
    """A plug-in whose source hides what it asks for gets past the look at the sources, not past the class."""
    good = resolve(SKILLED)
    config = type(good)(**{**vars(good), "agent_name": "deaf", "agent_options": {}})
    with pytest.raises(ConfigError, match="asks the policy for skills"):
        build(config)
