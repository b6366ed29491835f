"""Every reward with every agent, stopped inside a rollout and inside episodes, goes on to the same bits.

With PPO every variant is tried. The state goes through a checkpoint on disk into parts built anew, so that what is not
saved is not there.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from conftest import TINY, same_state
from intrigue.agents.registry import AGENTS
from intrigue.config.reward_expression import reward_names_in
from intrigue.config.run import RunConfig, declaration_of, resolve
from intrigue.errors import ConfigError
from intrigue.rewards.registry import REWARDS
from intrigue.run import checkpoint
from intrigue.training.build import build
from intrigue.training.loops import AnyParts, loop

STOP, END = 24, 56  # steps of all environments; a rollout has 16, an episode at most 40, staggered
SMALL = {"reward.expression": "0.5*nnm(feature_dim=8, hidden=8, blocks=0) + schedule(ngu(feature_dim=8), 1, 0, 300)"}
# Of agents that learn from replay: so small that it is full, and has forgotten, before the stop.
REPLAY = {
    "agent.capacity": 64,
    "agent.batch": 8,
    "agent.learning_starts": 32,
    "agent.n_step": 2,
    "agent.target_every": 60,
    "agent.epsilon_steps": 200,
}
# Where the maze stands for agents that move by numbers: episodes end several times before the stop.
CONTINUOUS = {
    "env": "dmc/pendulum_swingup",
    "env.max_episode_steps": 7,
    "pool.num_envs": 1,
    "agent.capacity": 16,
    "agent.learning_starts": 8,
}
CASES = [
    pytest.param(agent, reward, variant, id="-".join(filter(None, (agent, reward, variant))))
    for agent in AGENTS.names()
    for reward in REWARDS.names()
    for variant in (get_args(REWARDS.declaration(reward).hints().get("variant")) if agent == "ppo" else ()) or ("",)
]


def configured(agent: str, reward: str, variant: str, **changes: object) -> RunConfig:
    """The tiny run under this pair, with every setting that its parts know."""
    known = {section: declaration_of(section, name).hints() for section, name in (("agent", agent), ("reward", reward))}
    settings = {**TINY, **SMALL, **REPLAY, **({"reward.variant": variant} if variant else {})}
    fitting = {
        key: value
        for key, value in settings.items()
        if key.partition(".")[0] not in known or key.partition(".")[2] in known[key.partition(".")[0]]
    }
    if agent == "ddpg":
        fitting = {key: value for key, value in fitting.items() if not key.startswith("env")} | CONTINUOUS
    return resolve({**fitting, "agent": agent, "reward": reward, **changes})


def advance(parts: AnyParts, to: int) -> None:
    """Train until so many steps of all environments were taken."""
    for progress in loop(parts, warmup_steps=0):
        if progress.step >= to * parts.collector.pool.num_envs:
            return


@pytest.mark.parametrize(("agent", "reward", "variant"), CASES)
def test_resume_is_exact(tmp_path: Path, agent: str, reward: str, variant: str) -> None:
    if AGENTS.get(agent).cls.feed == "replay" and in_order(reward):
        with pytest.raises(ConfigError, match="follows episodes in order"):
            configured(agent, reward, variant)
        return
    resume_is_exact(tmp_path, configured(agent, reward, variant))


SUM = "0.5*nnm(feature_dim=8, hidden=8, blocks=0) + schedule(rnd(feature_dim=8, hidden=8), 1, 0, 200)"


@pytest.mark.parametrize(("reward", "changes"), [("rnd", {"agent.priority": 0.6}), ("mix", {"reward.expression": SUM})])
def test_resume_of_a_replay_is_exact(tmp_path: Path, reward: str, changes: dict[str, object]) -> None:
    resume_is_exact(tmp_path, configured("dqn", reward, "", **changes))


def in_order(reward: str) -> bool:
    """Whether a reward, or a part of it, follows episodes."""
    parts = reward_names_in(reward, {"expression": SMALL["reward.expression"]})
    return any(REWARDS.get(name).cls.needs_order for name in parts)


def resume_is_exact(folder: Path, cfg: RunConfig) -> None:
    calm, resumed = build(cfg), build(cfg)
    try:
        calm.collector.start()
        advance(calm, STOP)
        checkpoint.save(folder, STOP, calm.state_dict(), config_digest="", meta={}, keep=1)
        resumed.load_state_dict(checkpoint.load(folder, on_skip=print).state)
        assert same_state(calm.state_dict(), resumed.state_dict())
        advance(calm, END)
        advance(resumed, END)
        assert same_state(calm.state_dict(), resumed.state_dict())
    finally:
        calm.close()
        resumed.close()
