"""Layers, defaults, JSON in and out, digests."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intrigue.api import REGISTRIES
from intrigue.config.run import BOOKKEEPING, flatten_json, resolve
from intrigue.errors import ConfigError
from intrigue.presets import PRESETS, preset_layer


def test_later_layers_win():
    config = resolve({"steps": 10, "reward": "rnd"}, {"steps": "1e3"})
    assert config.run.steps == 1000
    assert config.reward_name == "rnd"


def test_large_counts_are_written_as_people_write_them():
    for text in ("1000000", "1e6", "1_000_000"):
        assert resolve({"steps": text}).run.steps == 1_000_000


def test_options_of_another_reward_do_not_survive_its_replacement():
    config = resolve({"reward": "nnm", "reward.form": "floor"}, {"reward": "rnd"})
    assert "form" not in config.reward_options


def test_options_survive_a_change_between_names_of_one_file():
    config = resolve({"reward": "nnmc", "reward.source": "knn"}, {"reward": "nnm"})
    assert config.reward_options["source"] == "knn"
    assert config.reward_options["form"] == "ratio"
    assert resolve({"reward": "nnmc"}).reward_options["form"] == "centered"


@pytest.mark.parametrize("name", PRESETS.names())
def test_every_preset_resolves(name):
    resolve(preset_layer(name))


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from(["nnm", "nnmc", "rnd", "none"]),
    st.integers(1, 10**9),
    st.floats(1e-6, 0.9),
    st.booleans(),
    st.sampled_from(["rooms", "chain", "noisy-tv"]),
)
def test_json_round_trip_is_the_identity(reward, steps, clip, ignore_done, env):
    config = resolve(
        {"env": env, "reward": reward, "steps": steps, "agent.clip": clip, "agent.ignore_done": ignore_done}
    )
    again = resolve(flatten_json(json.loads(json.dumps(config.to_json()))))
    assert again == config
    assert again.digest() == config.digest()


def test_digest_tells_what_is_computed_from_how_it_is_kept():
    base = resolve({"steps": 100})
    assert base.digest() == resolve({"steps": 999, "checkpoint_every": 7, "run.keep": 5}).digest()
    assert base.digest() != resolve({"seed": 1}).digest()
    assert base.digest() != resolve({"agent.clip": 0.3}).digest()
    assert resolve({"seed": 1}).digest(without=(*BOOKKEEPING, "seed")) == base.digest(without=(*BOOKKEEPING, "seed"))


def test_problems_name_path_and_limit():
    with pytest.raises(ConfigError) as caught:
        resolve({"agent.discount": 1.0, "pool.num_envs": 2})
    text = str(caught.value)
    assert "agent.discount: 1.0 is out of range; it must be >= 0 and < 1." in text
    assert "--agent.minibatches 2" in text


@pytest.mark.parametrize("kind", ["rewards", "agents", "envs"])
def test_every_setting_says_its_source_or_meaning(kind):
    """`train --help` shows the comment behind each field; a field without one is a number without a source."""
    for name, declared in REGISTRIES[kind].declarations().items():
        for field in declared.hints():
            assert declared.notes.get(field), f"{name}: {field}"


def test_more_minibatches_of_environments_than_environments_are_refused():
    layer = {"curiosity.minibatch_of": "environments", "curiosity.minibatches": 5, "pool.num_envs": 4}
    with pytest.raises(ConfigError, match=r"5 sets of whole environments .* --curiosity.minibatches 4 or less"):
        resolve(layer)
    assert resolve({**layer, "pool.num_envs": 5}).curiosity.minibatches == 5
    assert resolve({**layer, "curiosity.minibatch_of": "rows"}).curiosity.minibatches == 5
    assert resolve({**layer, "agent": "dqn"}).curiosity.minibatches == 5, "a batch that is drawn has no environments"
