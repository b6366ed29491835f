"""What can be refused before the first environment process starts: a replay that the machine has no room for.

How large a replay becomes hangs on what one environment shows, so one is made here and let go again, but only where
the answer is in doubt: a replay that would fit with the largest rows of any family here needs no look. What is found
later, when all parts stand, is refused then (`build`).
"""

from __future__ import annotations

import math

import torch

from intrigue.agents.agent import ReplayAgent
from intrigue.agents.registry import AGENTS
from intrigue.config.run import RunConfig
from intrigue.envs.make import make_env
from intrigue.envs.pool.config import worker_count
from intrigue.envs.pool.facts import Facts, facts_of
from intrigue.errors import ConfigError
from intrigue.replay.ring import ring_shape
from intrigue.training.memory_budget import free_bytes, of_replay, refuse_too_large

LARGE_ROW_BYTES = 100_000  # ours: above any row here; URLB's three colour pictures of 84 x 84 are 63,504 bytes


def refuse_ahead(cfg: RunConfig, device: torch.device) -> None:
    """Raise ConfigError for a replay that cannot fit, while there is no process to be stopped."""
    entry = AGENTS.get(cfg.agent_name)
    if not issubclass(entry.cls, ReplayAgent) or cfg.env_options.get("native_vector") or not worker_count(cfg.pool):
        return
    plan = entry.cls.plan_of(entry.config(**{**entry.defaults, **cfg.agent_options}))
    if plan is None or _surely_fits(plan.capacity, device):
        return
    facts = _facts(cfg)
    if facts is not None:
        refuse_too_large([of_replay(plan, facts.spaces, cfg.pool.num_envs, facts.stack, device)])


def _facts(cfg: RunConfig) -> Facts | None:
    """What one environment shows; None if it cannot be made, which the pool will say, naming the environment."""
    try:
        env = make_env(cfg.env_id, cfg.env_options)
    except ConfigError:
        raise
    except Exception:
        return None
    try:
        return facts_of(env.info)
    finally:
        env.close()


def _surely_fits(capacity: int, device: torch.device) -> bool:
    free = [free_bytes(each) for each in (device, torch.device("cpu"))]
    return all(each is None or math.prod(ring_shape(capacity)) * LARGE_ROW_BYTES < each for each in free)
