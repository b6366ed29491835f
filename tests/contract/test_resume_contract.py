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
from intrigue.config import RunConfig, declaration_of, resolve
from intrigue.rewards.registry import REWARDS
from intrigue.run import checkpoint
from intrigue.training.build import Parts, build
from intrigue.training.rollout import rollout

STOP, END = 24, 56  # steps of all environments; a rollout has 16, an episode at most 40, staggered
SMALL = {"reward.expression": "0.5*nnm(feature_dim=8, hidden=8, blocks=0) + schedule(ngu(feature_dim=8), 1, 0, 300)"}
CASES = [
    pytest.param(agent, reward, variant, id="-".join(filter(None, (agent, reward, variant))))
    for agent in AGENTS.names()
    for reward in REWARDS.names()
    for variant in (get_args(REWARDS.declaration(reward).hints().get("variant")) if agent == "ppo" else ()) or ("",)
]


def configured(agent: str, reward: str, variant: str) -> RunConfig:
    """The tiny run under this pair, with every setting that its parts know."""
    known = {section: declaration_of(section, name).hints() for section, name in (("agent", agent), ("reward", reward))}
    settings = {**TINY, **SMALL, **({"reward.variant": variant} if variant else {})}
    fitting = {
        key: value
        for key, value in settings.items()
        if key.partition(".")[0] not in known or key.partition(".")[2] in known[key.partition(".")[0]]
    }
    return resolve({**fitting, "agent": agent, "reward": reward})


def advance(parts: Parts, to: int) -> None:
    """Train until so many steps of all environments were taken."""
    for progress in rollout(parts, warmup_steps=0):
        if progress.step >= to * parts.collector.pool.num_envs:
            return


@pytest.mark.parametrize(("agent", "reward", "variant"), CASES)
def test_resume_is_exact(tmp_path: Path, agent: str, reward: str, variant: str) -> None:
    cfg = configured(agent, reward, variant)
    calm, resumed = build(cfg), build(cfg)
    try:
        calm.collector.start()
        advance(calm, STOP)
        checkpoint.save(tmp_path, STOP, calm.state_dict(), config_digest="", meta={}, keep=1)
        resumed.load_state_dict(checkpoint.load(tmp_path, on_skip=print).state)
        assert same_state(calm.state_dict(), resumed.state_dict())
        advance(calm, END)
        advance(resumed, END)
        assert same_state(calm.state_dict(), resumed.state_dict())
    finally:
        calm.close()
        resumed.close()
