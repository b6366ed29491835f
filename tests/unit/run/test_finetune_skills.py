"""Which skill a policy follows while it is fine-tuned: fixed, tried one by one, or regressed from rewards."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from conftest import same_state
from finetune_runs import pretrained, shrunk
from intrigue.errors import ConfigError
from intrigue.run.checkpoint import snapshot
from intrigue.run.finetune import configure
from intrigue.run.folder import RunFolder
from intrigue.training import skill_selection
from intrigue.training.build import build
from intrigue.training.evaluate import Evaluator
from intrigue.training.loops import loop
from intrigue.types import Episode


def tuned(tmp_path, preset, before=None, **changes):
    """The parts of a fine-tuning after a pre-training with this preset, not yet started."""
    short = {"run.snapshots": "30", "steps": 30, **(before or {})}
    folder = RunFolder(pretrained(tmp_path / preset, preset, **short).path)
    cfg = configure(snapshot.load(folder, None), folder, "walker_stand", {"device": "cpu", "steps": 200, **changes})
    return cfg, build(cfg)


def followed(parts, steps):
    """The skill of every step (steps, K) of one environment, by training it."""
    parts.collector.start()
    seen = [parts.collector.skills.current[0].clone()]
    for progress in loop(parts, 0):
        seen.append(parts.collector.skills.current[0].clone())
        if progress.step >= steps:
            break
    return torch.stack(seen)


def test_cic_follows_one_half_everywhere_and_is_evaluated_so(tmp_path, monkeypatch):
    cfg, parts = tuned(tmp_path, "cic-urlb")
    try:
        assert (followed(parts, 45) == 0.5).all()
        assert parts.collector.skills.current.shape == (1, 64)
        heard = []
        act = parts.agent.act
        monkeypatch.setattr(
            parts.agent, "act", lambda obs, skill, **kw: (heard.append(skill), act(obs, skill, **kw))[1]
        )
        evaluator = Evaluator(cfg, parts)
        evaluator(45)
        evaluator.close()
        assert [skill.shape for skill in heard] == [(10, 64)] * 10, "ten episodes of ten steps, side by side"
        assert all((skill == 0.5).all() for skill in heard)
    finally:
        parts.close()


def test_diayn_goes_on_drawing_as_urlb_does(tmp_path):
    _, parts = tuned(tmp_path, "diayn-urlb")
    try:
        skills = followed(parts, 60)
        assert (skills.sum(-1) == 1).all()
        assert len(skills.unique(dim=0)) > 1
        assert parts.collector.skills.held is None
    finally:
        parts.close()


def test_smm_tries_each_skill_for_an_episode_and_keeps_the_best(tmp_path, monkeypatch):
    """Episodes of ten steps, random until step 20: trials from there on, one of the four after another."""
    cfg, parts = tuned(tmp_path, "smm-urlb")
    try:
        parts.collector.start()
        paid = {0: 1.0, 1: 5.0, 2: 9.0, 3: 2.0}
        step = parts.collector.step

        def rewarded(agent, rng):
            episodes, action = step(agent, rng)
            followed = int(parts.collector.skills.current[0].argmax())
            made_up = [Episode(e.step, e.env, paid[followed], e.length, e.terminated) for e in episodes]
            return made_up, action

        monkeypatch.setattr(parts.collector, "step", rewarded)
        held = {}
        for progress in loop(parts, 0):
            skill = parts.collector.skills.held
            held[progress.step] = None if skill is None else int(skill.argmax())
            if progress.step == 43:
                half_way = parts.choice.state_dict()
            if progress.step >= 90:
                break
        assert [held[step] for step in (19, 20, 29, 30, 39, 40, 49, 50, 59)] == [None, 0, 0, 1, 1, 2, 2, 3, 3]
        assert {held[step] for step in range(60, 91)} == {2}, "the best of the four, for good"
        assert parts.choice.returns == [1.0, 5.0, 9.0, 2.0]
        assert half_way == {"trial_began": 40, "returns": [1.0, 5.0]}
        again = build(cfg)
        again.choice.load_state_dict(half_way)
        assert again.choice.state_dict() == half_way
        again.close()
    finally:
        parts.close()


def test_an_episode_that_was_under_way_is_no_trial(tmp_path):
    """Learning starts at step 25, in the middle of an episode; it ends at 30 and does not count."""
    _, parts = tuned(tmp_path, "smm-urlb", **{"agent.learning_starts": 25})
    try:
        parts.collector.start()
        tries = {}
        for progress in loop(parts, 0):
            tries[progress.step] = len(parts.choice.returns)
            if progress.step >= 50:
                break
        assert (tries[30], tries[39], tries[40], tries[50]) == (0, 0, 1, 2)
    finally:
        parts.close()


def test_aps_regresses_the_task_its_rewards_ask_for(tmp_path, monkeypatch):
    """Rewards that are w · φ̂(s') of a known w, in the replay: w is found, every five steps, from the first due on."""
    monkeypatch.setattr(skill_selection, "REGRESSION_BEGINS", 30)
    monkeypatch.setattr(skill_selection, "REGRESSION_ROWS", 64)
    _, parts = tuned(tmp_path, "aps-urlb", before={"reward.hidden": 64})  # ten features that do not depend on others
    wanted = torch.nn.functional.normalize(torch.arange(1.0, 11.0), dim=0)
    try:
        parts.collector.start()
        reward = parts.curiosity.reward
        step = parts.collector.pool.step

        def rewarded(action):
            now = step(action)
            with torch.no_grad():
                features = reward._encode(torch.from_numpy(np.array(now.next_obs)).unsqueeze(0))[0]
                paid = torch.nn.functional.normalize(features, dim=-1) @ wanted
            return now._replace(reward=paid.numpy())

        monkeypatch.setattr(parts.collector.pool, "step", rewarded)
        found = {}
        for progress in loop(parts, 0):
            held = parts.collector.skills.held
            found[progress.step] = None if held is None else held.clone()
            if progress.step >= 61:
                break
        assert found[30] is None and found[34] is None and found[35] is not None
        torch.testing.assert_close(found[60], wanted, atol=1e-3, rtol=0)
        assert torch.equal(found[60], found[61])
        assert torch.equal(parts.collector.skills.current[0], found[61])
    finally:
        parts.close()


def test_a_task_of_no_reward_is_not_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(skill_selection, "REGRESSION_BEGINS", 30)
    monkeypatch.setattr(skill_selection, "REGRESSION_ROWS", 16)
    folder = RunFolder(pretrained(tmp_path / "aps", "aps-urlb", **{"run.snapshots": "30", "steps": 30}).path)
    cfg = configure(snapshot.load(folder, None), folder, "walker_stand", {"device": "cpu"})
    parts = build(type(cfg)(**{**vars(cfg), "env_id": "dmc/walker"}))  # whose reward is always 0
    try:
        followed(parts, 45)
        assert parts.collector.skills.held is None
    finally:
        parts.close()


@pytest.mark.parametrize(
    ("preset", "rule", "said"),
    [
        ("nnm-urlb", "middle", "has no skills"),
        ("cic-urlb", "tried", "those of this reward are uniform"),
        ("diayn-urlb", "regressed", "needs the features of the reward aps"),
    ],
)
def test_a_rule_that_does_not_fit_the_skills_is_refused(preset, rule, said):
    with pytest.raises(ConfigError, match=said):
        build(shrunk(preset, **{"curiosity.follow": rule}))


def test_a_held_skill_survives_a_resume(tmp_path):
    cfg, parts = tuned(tmp_path, "smm-urlb")
    other = build(cfg)
    try:
        followed(parts, 45)
        other.load_state_dict(parts.state_dict())
        assert torch.equal(other.collector.skills.held, parts.collector.skills.held)
        assert same_state(parts.state_dict(), other.state_dict())
    finally:
        parts.close()
        other.close()
