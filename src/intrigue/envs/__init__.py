"""Environments: the registry of families, the single-environment protocol and the worker pool. Loads no torch."""

from intrigue.envs.base import Env, EnvInfo, Step
from intrigue.envs.registry import ENVS, register_env

__all__ = ["ENVS", "Env", "EnvInfo", "Step", "register_env"]
