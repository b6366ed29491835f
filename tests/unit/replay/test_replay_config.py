"""Settings of runs with a replay: what follows from the agent, what is refused, and all of it at once."""

from __future__ import annotations

import pytest
import torch

from conftest import make_spaces
from intrigue.agents.registry import AGENTS
from intrigue.config.run import flatten_json, resolve
from intrigue.errors import ConfigError
from intrigue.rewards.registry import REWARDS
from intrigue.training.build import build

SMALL = {"agent": "dqn", "agent.capacity": 2000, "agent.learning_starts": 40, "pool.workers": 0, "device": "cpu"}


def test_curiosity_fits_an_agent_that_replays_unless_told_otherwise():
    cfg = resolve(SMALL).curiosity
    assert (cfg.scale, cfg.epochs, cfg.minibatches) == ("value", 1, 1)
    assert resolve({**SMALL, "curiosity.scale": "none", "curiosity.epochs": 2}).curiosity.epochs == 2
    rollouts = resolve({}).curiosity
    assert (rollouts.scale, rollouts.epochs, rollouts.minibatches) == ("return", 3, 8)


def test_a_config_file_repeats_the_run():
    cfg = resolve(SMALL)
    assert resolve(flatten_json(cfg.to_json())) == cfg


def test_everything_a_replay_cannot_do_is_said_at_once():
    wrong = {
        "curiosity.scale": "return",
        "curiosity.streams": "two",
        "reward": "ngu",
        "agent.batch": 0,
        "agent.epsilon_end": 2,
    }
    with pytest.raises(ConfigError) as refusal:
        resolve({**SMALL, **wrong})
    said = {problem.path: problem.message for problem in refusal.value.problems}
    assert set(said) == {"curiosity.scale", "curiosity.streams", "reward", "agent.batch", "agent.epsilon_end"}
    assert "--curiosity.scale value" in said["curiosity.scale"]
    assert "--agent ppo" in said["curiosity.streams"]
    assert "--agent ppo" in said["reward"]


@pytest.mark.parametrize("scale", ["return", "total"])
def test_scales_that_follow_time_are_refused(scale):
    with pytest.raises(ConfigError, match=f"'{scale}' follows the returns of each environment through time"):
        resolve({**SMALL, "curiosity.scale": scale})


def test_rewards_that_follow_episodes_are_refused_and_no_others():
    for name in REWARDS.names():
        if name == "mix":
            continue
        if REWARDS.get(name).cls.needs_order:
            with pytest.raises(ConfigError, match="follows episodes in order"):
                resolve({**SMALL, "reward": name})
        else:
            assert resolve({**SMALL, "reward": name}).reward_name == name


def test_a_batch_larger_than_the_replay_is_refused():
    with pytest.raises(ConfigError, match="fewer than one batch"):
        resolve({**SMALL, "agent.capacity": 100, "agent.batch": 101})


def test_a_window_longer_than_what_is_remembered_is_refused():
    """It would never be complete, and the run would never learn and not say so."""
    few = {**SMALL, "env": "chain", "reward": "none", "pool.num_envs": 4, "agent.capacity": 320, "agent.n_step": 60}
    with pytest.raises(ConfigError, match=r"320 transitions are too few .* windows of 60. Use --agent.capacity 496"):
        build(resolve(few))


def test_a_window_just_shorter_than_what_is_remembered_is_drawn():
    from intrigue.training.loops import loop

    layer = {**SMALL, "env": "chain", "env.length": 2, "env.max_steps": 1, "reward": "none", "pool.num_envs": 4,
             "agent.capacity": 496, "agent.n_step": 60, "agent.train_every": 1_000_000}  # fmt: skip
    parts = build(resolve(layer))
    parts.collector.start()
    drawn = []
    for progress in loop(parts, 0):
        drawn.append(len(parts.collector.replay))
        if progress.step >= 2400:
            break
    parts.close()
    assert min(drawn[70:]) > 0, "every step ends an episode, so half of the rows are ends"


def test_actions_that_are_no_classes_are_refused_when_they_are_known():
    entry = AGENTS.get("dqn")
    assert entry.cls.refusal(entry.config(), make_spaces("vector", "discrete")) is None
    with pytest.raises(ConfigError, match=r"dqn: continuous actions .* Use --agent ppo"):
        build(resolve({**SMALL, "env": "gym/Pendulum-v1", "reward": "none"}))


def test_schedules_go_by_agent_steps_not_by_what_is_drawn():
    """Of 400 steps 90 updates of 32 rows are drawn; the bonus's weight and a schedule are both half way at 200."""
    from intrigue.training.loops import loop

    schedule = "schedule(rnd(feature_dim=4, hidden=4), 1, 0, 400)"
    layer = {**SMALL, "env": "chain", "pool.num_envs": 4, "agent.rollout_steps": 1, "reward": schedule}
    parts = build(resolve({**layer, "curiosity.int_coef": 2.0, "curiosity.int_coef_steps": 400}))
    parts.collector.start()
    seen = {}
    for progress in loop(parts, 0):
        seen[progress.step] = progress.metrics
        if progress.step >= 480:
            break
    parts.close()
    assert seen[200]["intrinsic/coefficient"] == pytest.approx(1.0)
    assert seen[200]["intrinsic/part/schedule"] == pytest.approx(0.5)
    assert seen[480]["intrinsic/coefficient"] == 0
    assert seen[480]["intrinsic/part/schedule"] == 0


def test_warm_up_steps_feed_the_moments_and_delay_learning():
    from intrigue.training.loops import loop

    layer = {**SMALL, "env": "chain", "pool.num_envs": 4, "agent.rollout_steps": 1, "reward": "rnd"}
    parts = build(resolve({**layer, "reward.feature_dim": 4, "curiosity.obs_moments": "warm-up",
                           "curiosity.warmup_steps": 80}))  # fmt: skip
    parts.collector.start()
    before = parts.agent.train_state()["modules"]
    for progress in loop(parts, 80):
        if progress.step == 80:
            moments = parts.curiosity.obs_moments
            assert float(moments.count) == pytest.approx(80, abs=0.01)
            unlearned = parts.agent.train_state()["modules"]
            assert all(torch.equal(before[name], unlearned[name]) for name in before)
        if progress.step >= 160:
            break
    assert float(parts.curiosity.obs_moments.count) == pytest.approx(80, abs=0.01), "fixed after the warm-up"
    assert "losses/td_loss" in progress.metrics
    parts.close()


def test_a_young_run_is_evaluated_by_its_values_not_by_its_exploration(tmp_path, monkeypatch):
    from intrigue.run import driver, play
    from intrigue.run.folder import open_run

    layer = {**SMALL, "env": "chain", "reward": "none", "pool.num_envs": 2, "steps": 60, "agent.epsilon_end": 0.05}
    driver.start(resolve(layer), out=tmp_path / "young", quiet=True)
    seen = []
    monkeypatch.setattr(play, "play_episodes", lambda agent, *_, **__: seen.append(float(agent.epsilon)))
    play.play(open_run(tmp_path / "young"), 1, seed=0, greedy=False, film=False)
    assert seen == [pytest.approx(0.05)]
