"""The Atari presets against a table of the sources' values, written here once more and not taken from the presets."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import re

import pytest
import torch

from intrigue.cli import main
from intrigue.config.run import resolve
from intrigue.envs.atari import games
from intrigue.envs.atari.protocols import PROTOCOLS
from intrigue.errors import ConfigError
from intrigue.presets import PRESETS, preset_layer
from intrigue.rewards.registry import REWARDS
from intrigue.spaces import ActionSpec, ObsSpec, Spaces
from intrigue.training.build import build
from intrigue.training.on_policy import train_on_policy

ATARI = [name for name in PRESETS.names() if "atari" in name]
FULL = [name for name in ATARI if not name.endswith("-small")]
INT_EXT = [name for name in FULL if name.endswith("-int-ext")]
SMALL = [name for name in ATARI if name.endswith("-small")]

# Pathak et al. 2019 as their code has it: run.py, cppo_agent.py, rollouts.py, utils.py, cnn_policy.py.
SIZES = {
    "pool.num_envs": 128,
    "agent.rollout_steps": 128,
    "run.steps": 10**8,
}
PPO = {
    "agent.name": "ppo",
    "agent.discount": 0.99,
    "agent.gae_lambda": 0.95,
    "agent.clip": 0.1,
    "agent.epochs": 3,
    "agent.minibatches": 8,
    "agent.learning_rate": 1e-4,
    "agent.anneal_steps": 0,
    "agent.adam_eps": 1e-8,
    "agent.entropy_coef": 0.001,
    "agent.value_coef": 1.0,  # the loss is value_coef · ½(V − R)², theirs ½(V − R)²
    "agent.max_grad_norm": 0.0,
    "agent.normalize_advantage": True,
    "agent.advantage_eps": 1e-7,
    "agent.ignore_done": True,
    "agent.trunk": "dis",
    "agent.features": 512,
    "agent.normalize_obs": True,
    "agent.obs_moments": "warm-up",
    "agent.obs_norm": "scalar",
}
REWARD_SHAPING = {
    "curiosity.int_coef": 1.0,
    "curiosity.int_coef_steps": 0,
    "curiosity.ext_coef": 0.0,
    "curiosity.ext_clip": 1.0,
    "curiosity.streams": "one",
    "curiosity.scale": "total",
    "curiosity.scale_discount": 0.99,
    "curiosity.learning_rate": 1e-4,
    "curiosity.epochs": 3,
    "curiosity.minibatches": 8,
    "curiosity.minibatch_of": "environments",
    "curiosity.update_fraction": 1.0,
    "curiosity.feature_noise": 0.0,
    "curiosity.warmup_steps": 10_000,
}
INPUT = {"curiosity.obs_norm": "scalar", "curiosity.obs_clip": 0.0, "curiosity.obs_moments": "warm-up"}
MODELS = {"reward.feature_dim": 512, "reward.hidden": 512, "reward.blocks": 4}
ENSEMBLE = {**MODELS, "reward.encoder": "random", "reward.keep": 0.8}
NNM = {**ENSEMBLE, "reward.name": "nnm", "reward.source": "ensemble", "reward.form": "ratio", "reward.n": 5,
       "reward.features": "layernorm"}  # fmt: skip
BONUS = {
    "nnm-atari": NNM,
    "nnm-literal-atari": {**NNM, "reward.features": "raw"},
    "nnm-floor-atari": {**NNM, "reward.form": "floor"},
    "nnm-centered-atari": {**NNM, "reward.name": "nnmc", "reward.form": "centered", "reward.features": "raw"},
    "nnm-knn-atari": {**NNM, "reward.source": "knn", "reward.memory": 32_768},
    "disagreement-atari": {**ENSEMBLE, "reward.name": "disagreement", "reward.variant": "official",
                           "reward.members": 5},
    "icm-atari": {**MODELS, "reward.name": "icm", "reward.variant": "official", "reward.encoder": "idf"},
    # Burda et al. 2018: newest frame, spread per pixel, clipped to ±5, moments that go on.
    "rnd-atari": {"reward.name": "rnd", "reward.variant": "official", "reward.feature_dim": 512, "reward.hidden": 512,
                  "reward.last_channels": 1, "curiosity.obs_norm": "elementwise", "curiosity.obs_clip": 5.0,
                  "curiosity.obs_moments": "running"},
    "random-atari": {"reward.name": "random"},
    "none-atari": {"reward.name": "none", "curiosity.ext_coef": 1.0},
}  # fmt: skip


def values_of(name):
    """Every setting of the resolved preset, by path."""
    tree = resolve(preset_layer(name)).to_json()
    return {f"{part}.{key}": value for part in tree if part != "schema" for key, value in tree[part].items()}


def changes(one, two):
    """What differs, as {path: (one, two)}."""
    first, second = values_of(one), values_of(two)
    return {
        path: (first.get(path), second.get(path))
        for path in {*first, *second}
        if first.get(path, None) != second.get(path, None)
    }


@pytest.mark.parametrize("name", sorted(BONUS))
def test_a_preset_is_what_the_sources_say(name):
    wanted = {"env.id": "atari/Breakout", "env.protocol": "disagreement", "env.max_episode_steps": 0,
              "env.full_action_space": False, **SIZES, **PPO, **REWARD_SHAPING, **INPUT, **BONUS[name]}  # fmt: skip
    got = values_of(name)
    assert {path: got.get(path) for path in wanted} == wanted


def test_the_protocol_is_disagreements():
    protocol = PROTOCOLS["disagreement"]
    assert (protocol.sticky, protocol.skip, protocol.stack, protocol.max_frames) == (0.25, 4, 4, 18_000)
    assert (protocol.noop_max, protocol.life_ends, protocol.resize) == (0, False, "bilinear")


def test_every_preset_of_the_issue_is_there():
    assert set(FULL) == {*BONUS, *(f"{name}-int-ext" for name in BONUS if name not in ("random-atari", "none-atari"))}
    assert set(SMALL) == {"nnm-atari-small", "disagreement-atari-small", "none-atari-small"}


@pytest.mark.parametrize("name", [name for name in BONUS if name != "nnm-atari"])
def test_only_the_bonus_differs(name):
    """Everything but the bonus, its input and whether the score counts is that of nnm-atari."""
    allowed = {"rnd-atari": {f"curiosity.{each}" for each in ("obs_norm", "obs_clip", "obs_moments")},
               "none-atari": {"curiosity.ext_coef"}}  # fmt: skip
    differing = {path for path in changes("nnm-atari", name) if not path.startswith("reward.")}
    assert differing == allowed.get(name, set())


@pytest.mark.parametrize("name", INT_EXT)
def test_int_ext_differs_only_in_how_the_score_counts(name):
    assert changes(name.removesuffix("-int-ext"), name) == {
        "curiosity.ext_coef": (0.0, 2.0),  # β
        "curiosity.scale": ("total", "return"),  # the bonus by its own spread, the score not
    }
    assert values_of(name)["curiosity.int_coef"] == 1.0  # α


@pytest.mark.parametrize("name", SMALL)
def test_small_differs_only_in_size(name):
    sizes = {
        "run.steps", "run.checkpoint_every", "run.device", "run.threads", "pool.num_envs", "pool.workers",
        "pool.groups", "agent.minibatches", "agent.features", "curiosity.minibatches", "reward.feature_dim",
        "reward.hidden", "reward.blocks",
    }  # fmt: skip
    found = changes(name.removesuffix("-small"), name)
    assert set(found) <= sizes
    small = values_of(name)
    assert (small["pool.num_envs"], small["pool.workers"], small["run.device"]) == (8, 2, "cpu")


@pytest.mark.parametrize("name", ATARI)
def test_checkpoints_fall_on_ends_of_rollouts(name):
    values = values_of(name)
    assert values["run.checkpoint_every"] % (values["pool.num_envs"] * values["agent.rollout_steps"]) == 0


def test_a_member_has_the_sources_number_of_weights():
    """Ten dense layers on 512 features, the action of 18 joined at each: 2.7 million."""
    values = values_of("disagreement-atari")
    options = {key.removeprefix("reward."): value for key, value in values.items() if key.startswith("reward.")}
    entry = REWARDS.get(options.pop("name"))
    spaces = Spaces(ObsSpec("pixels", (4, 84, 84)), ActionSpec("discrete", sizes=(18,)))
    reward = entry.cls(entry.config(**options), spaces)
    trained = sum(weight.numel() for weight in reward.parameters() if weight.requires_grad)
    assert trained == 5 * 10 * (512 * (512 + 18) + 512)
    assert trained / 5 == pytest.approx(2.7e6, rel=0.01)


def test_the_game_named_wins(capsys):
    assert main(["train", "atari/Pong", "--preset", "nnm-atari", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert '"id": "atari/Pong"' in shown and '"protocol": "disagreement"' in shown


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("Breakuot", "Breakout"), ("pong", "Pong"), ("MontezumasRevenge", "MontezumaRevenge"), ("up_n_down", "UpNDown")],
)
def test_a_wrong_game_is_answered_with_the_nearest(typed, meant):
    with pytest.raises(ConfigError, match=f"Did you mean 'atari/{meant}'"):
        resolve(preset_layer("nnm-atari"), {"env": f"atari/{typed}"})


def test_a_missing_emulator_is_answered_with_the_command_that_installs_it(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        games.importlib.util, "find_spec", lambda name, *more: None if name == "ale_py" else found(name, *more)
    )
    with pytest.raises(ConfigError, match=re.escape("Install it with: pip install 'intrigue[atari]'")):
        resolve(preset_layer("nnm-atari"))


def test_a_wrong_preset_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'nnm-atari'"):
        preset_layer("nnm-atary")


@pytest.mark.parametrize("name", [*sorted(BONUS), "nnm-atari-int-ext", "nnm-atari-small"])
def test_a_preset_trains(name):
    """A rollout of random steps, then one that is learned from, at sizes that take a moment."""
    fields = REWARDS.declaration(resolve(preset_layer(name)).reward_name).hints()
    shrunk = {"reward.feature_dim": 8, "reward.hidden": 8, "reward.blocks": 1, "reward.memory": 16}
    shrunk = {path: value for path, value in shrunk.items() if path.removeprefix("reward.") in fields}
    sizes = {
        "pool.num_envs": 2, "pool.groups": 2, "pool.workers": 0, "agent.rollout_steps": 6, "agent.minibatches": 2,
        "agent.features": 8, "curiosity.minibatches": 2, "curiosity.warmup_steps": 12, "device": "cpu",
    }  # fmt: skip
    config = resolve(preset_layer(name), sizes, shrunk)
    with contextlib.closing(build(config)) as parts:
        parts.collector.start()
        steps = train_on_policy(parts, config.curiosity.warmup_steps)
        before = {key: value.clone() for key, value in parts.agent.named_parameters()}
        for _ in range(6):
            warmed = next(steps)
        assert all(torch.equal(value, before[key]) for key, value in parts.agent.named_parameters())
        for _ in range(6):
            learned = next(steps)
        assert "losses/policy_loss" not in warmed.metrics
        assert all(math.isfinite(value) for value in learned.metrics.values())
        assert any(not torch.equal(value, before[key]) for key, value in parts.agent.named_parameters())
        if config.reward_name != "none":
            assert learned.metrics["intrinsic/raw_mean"] > 0
