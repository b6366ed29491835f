"""The registry of environment families by name."""

from __future__ import annotations

from intrigue.envs.base import Env
from intrigue.registry import Registry

ENVS: Registry[Env] = Registry("env", "intrigue.envs")
register_env = ENVS.register


def split_id(env_id: str) -> tuple[str, str]:
    """Family and name of an environment id: `gym/CartPole-v1` -> (`gym`, `CartPole-v1`), `rooms` -> (`rooms`, ``)."""
    family, _, name = env_id.partition("/")
    return family, name
