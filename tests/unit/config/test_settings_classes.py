"""Settings of rewards and agents by their public names, wherever a name is accepted."""

from __future__ import annotations

import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

import intrigue
import intrigue.agents
import intrigue.rewards
from intrigue.config.run import RunConfig, resolve
from intrigue.errors import ConfigError
from intrigue.registry import EmptyConfig

SPACES = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(4)


@pytest.mark.parametrize("package", [intrigue.rewards, intrigue.agents])
def test_every_settings_class_has_a_public_name_and_its_instances_resolve_to_its_defaults(package) -> None:
    section = "reward" if package is intrigue.rewards else "agent"
    registry = getattr(package, f"{section}s".upper())
    with_settings = {
        name
        for name, each in registry.declarations().items()
        if each.config.__name__ != EmptyConfig.__name__ and not each.defaults and not name.startswith("mix")
    }
    public = {name: plugin for name, plugin in registry.settings_names().items() if plugin in with_settings}
    assert set(public.values()) == with_settings
    for name, plugin in public.items():
        settings = getattr(package, name)()
        assert type(settings) is registry.get(plugin).config
        assert name in dir(package) and not name.endswith("Config")
        assert registry.read_settings(settings) == (plugin, resolve_options(registry, plugin))


def resolve_options(registry, name):
    declared = registry.declaration(name)
    return {key: declared.default(key) for key in declared.hints()}


def test_settings_stand_for_a_name_and_its_options() -> None:
    from intrigue.agents import PPO
    from intrigue.rewards import NNM

    named = resolve({"reward": "nnm", "reward.n": 7, "agent": "ppo", "agent.clip": 0.2})
    assert resolve({"reward": NNM(n=7), "agent": PPO(clip=0.2)}) == named
    assert resolve({"reward": NNM(n=5), "reward.n": 7, "agent.clip": 0.2}) == named, "single fields are more specific"
    assert RunConfig(reward_name=NNM(n=7)).reward_options == named.reward_options
    assert RunConfig(reward_name=NNM(n=7)).reward_name == "nnm"
    centered = resolve({"reward": NNM(form="centered")})
    assert centered.reward_options == resolve({"reward": "nnmc"}).reward_options


def test_curiosity_and_train_take_settings(tmp_path) -> None:
    from intrigue.rewards import NNM

    small = {"n": 3, "feature_dim": 8, "hidden": 8, "blocks": 0}
    curiosity = intrigue.Curiosity(NNM(**small), *SPACES, ext_coef=1.0)
    named = intrigue.Curiosity("nnm", *SPACES, ext_coef=1.0, **small)
    assert repr(curiosity) == repr(named)
    run = intrigue.train(
        {"env": "chain", "reward": NNM(**small), "steps": 64, "agent.rollout_steps": 8, "threads": 1, "device": "cpu"},
        out=tmp_path / "run",
    )
    assert run.config.reward_name == "nnm" and run.config.reward_options["n"] == 3


def test_what_is_no_setting_is_refused() -> None:
    from intrigue.rewards import NNM

    with pytest.raises(ConfigError, match=r"reward.n: 0 is out of range"):
        resolve({"reward": NNM(n=0)})
    with pytest.raises(ConfigError, match=r"agent: .* is not a name"):
        resolve({"agent": NNM()})
    with pytest.raises(ConfigError, match="reward: 3 is not a name"):
        intrigue.Curiosity(3, *SPACES)
    with pytest.raises(AttributeError, match=r"'intrigue.rewards' has no attribute 'Nothing'"):
        intrigue.rewards.Nothing  # noqa: B018


def test_names_are_known_without_torch() -> None:
    code = "import sys, intrigue, intrigue.rewards, intrigue.agents; assert 'NNM' in dir(intrigue.rewards)\n"
    code += "assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
