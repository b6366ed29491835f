"""Composed rewards: what is computed, what parts ask of the whole, and what survives a resume."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import GYM_ACTIONS, GYM_OBS, make_batch, make_spaces, same_state
from intrigue import Curiosity
from intrigue.agents.registry import AGENTS
from intrigue.config.expression_tree import (
    Clip,
    Gate,
    Leaf,
    Number,
    Product,
    Schedule,
    Sum,
    bounds,
    labels,
    leaves,
    make_product,
    make_sum,
    schedules,
    to_text,
)
from intrigue.config.reward_expression import parse, parse_reward
from intrigue.config.run import flatten_json, resolve
from intrigue.errors import ConfigError
from intrigue.rewards import REWARDS
from intrigue.rewards.mix import Mix, MixConfig, evaluate
from intrigue.rng import seeded_construction
from places import PLUGINS

PLUGIN = PLUGINS / "parted_rewards.py"
REPLAYER = PLUGIN.with_name("replay_agent.py")
SMALL_RND = "rnd(feature_dim=8, hidden=8)"
SMALL_NNM = "nnm(feature_dim=8, hidden=8, blocks=0)"


@pytest.fixture
def _plugin():
    """The rewards of the plug-in file, gone again afterwards."""
    before, agents = list(REWARDS._extra_files), list(AGENTS._extra_files)
    REWARDS.add_file(PLUGIN)
    AGENTS.add_file(REPLAYER)
    yield
    REWARDS._extra_files[:], AGENTS._extra_files[:] = before, agents


def curiosity(expression: str, obs: str = "vector", **options) -> Curiosity:
    return Curiosity(expression, GYM_OBS[obs], GYM_ACTIONS["discrete"], minibatches=2, epochs=1, **options)


LEAVES = {"nnm": True, "rnd": False, "nnmc": False}
VALUES = st.floats(-3, 3).map(lambda value: round(value, 2))


def trees(inner):
    pair = st.tuples(VALUES, VALUES).map(sorted)
    return st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({' + '.join(parts)})"),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({' - '.join(parts)})"),
        st.lists(inner, min_size=2, max_size=3).map("*".join),
        inner.map(lambda part: f"-{part}"),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"sum({', '.join(parts)})"),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"product({', '.join(parts)})"),
        st.tuples(inner, pair).map(lambda drawn: f"clip({drawn[0]}, {drawn[1][0]}, {drawn[1][1]})"),
        st.tuples(inner, inner, VALUES).map(lambda drawn: f"gate({drawn[0]}, {drawn[1]}, {drawn[2]})"),
        st.tuples(inner, VALUES, VALUES).map(lambda drawn: f"schedule({drawn[0]}, {drawn[1]}, {drawn[2]}, 10)"),
    )


EXPRESSIONS = st.recursive(
    st.sampled_from(sorted(LEAVES)) | VALUES.map(lambda value: f"({value})"), trees, max_leaves=8
)


def by_numpy(text: str, arrays: dict[str, np.ndarray], seen: int) -> np.ndarray:
    """The value by Python's own evaluation of the text as it was written: nothing of ours but the definitions."""
    words = {
        "sum": lambda *parts: np.sum(np.broadcast_arrays(*parts), axis=0),
        "product": lambda *parts: np.prod(np.broadcast_arrays(*parts), axis=0),
        "clip": np.clip,
        "gate": lambda part, by, above: np.where(np.asarray(by) > above, part, 0.0),
        "schedule": lambda part, start, end, steps: (start + min(1.0, seen / steps) * (end - start)) * part,
    }
    return eval(text, {"__builtins__": {}}, {**words, **arrays})


@settings(max_examples=300, deadline=None)
@given(EXPRESSIONS.filter(lambda text: any(name in text for name in LEAVES)), st.integers(0, 20), st.integers(0, 2**31))
def test_values_are_those_of_the_text_as_written(text, seen, seed):
    rng = np.random.default_rng(seed)
    # nnm stands for a reward that may be negative.
    arrays = {
        name: rng.normal(size=(2, 3)) if signed else rng.exponential(size=(2, 3)) for name, signed in LEAVES.items()
    }
    tree = parse(text)
    weights = {
        each: torch.tensor(each.start + min(1.0, seen / each.steps) * (each.end - each.start), dtype=torch.float64)
        for each in schedules(tree)
    }
    value = evaluate(tree, {Leaf(name): torch.from_numpy(array) for name, array in arrays.items()}, weights)
    wanted = np.broadcast_to(by_numpy(text, arrays, seen), (2, 3))
    np.testing.assert_allclose(value.broadcast_to(2, 3), wanted, rtol=1e-9, atol=1e-9)
    assert parse(to_text(tree)) == tree, "the canonical text reads back as the same tree"
    low, high = bounds(tree, {Leaf(name): signed for name, signed in LEAVES.items()})
    assert low - 1e-9 <= wanted.min() and wanted.max() <= high + 1e-9


def test_trees_by_hand():
    a, b = Leaf("rnd"), Leaf("nnm", (("n", 7),))
    assert parse("rnd + 2*nnm(n=7)") == Sum((a, Product((Number(2), b))))
    assert parse("clip(rnd, 0, 1) + 0") == Clip(a, 0, 1)
    assert parse("gate(rnd, nnm(n=7), 0.5)") == Gate(a, b, 0.5)
    assert parse("schedule(rnd, 0, 1, 5)") == Schedule(a, 0, 1, 5)
    assert leaves(parse("rnd*nnm(n=7) + rnd + nnm(n=7)")) == [a, b], "the same text is the same part"
    assert make_sum([]) == Number(0) and make_product([]) == Number(1)
    assert labels(["nnm", "nnm", "rnd", "nnm_2", "nnm"]) == ["nnm", "nnm_2", "rnd", "nnm_2_2", "nnm_3"]
    at_the_limit = {a: torch.tensor([[3.0, 4.0]]), b: torch.tensor([[0.5, 0.6]])}
    assert evaluate(Gate(a, b, 0.5), at_the_limit, {}).tolist() == [[0.0, 4.0]], "above, not at"
    assert bounds(parse("1 - clip(rnd, 0, 2)"), {a: False}) == (-1, 1)
    assert bounds(parse("0*nnm(n=7)"), {b: True}) == (0, 0)


def built(expression: str, seed: int = 0) -> Mix:
    with seeded_construction(seed, "test"):
        return Mix(MixConfig(expression), make_spaces())


def test_a_part_is_the_same_whatever_stands_beside_it():
    alone, beside = built(SMALL_RND), built(f"{SMALL_NNM} + 3*{SMALL_RND}*{SMALL_RND}")
    assert len(beside.bonuses) == 2, "a part named twice is one module"
    assert same_state(dict(alone.bonuses[0].state_dict()), dict(beside.bonuses[1].state_dict()))
    other = built(SMALL_RND, seed=1)
    assert not same_state(dict(alone.bonuses[0].state_dict()), dict(other.bonuses[0].state_dict()))


def test_a_mixture_of_one_learns_and_pays_as_the_reward_alone():
    plain = curiosity("rnd", feature_dim=8, hidden=8)
    mixed = curiosity(f"1*{SMALL_RND}")
    mixed.reward.bonuses[0].load_state_dict(plain.reward.state_dict())
    for seed in range(3):
        batch = make_batch(make_spaces(), seed=seed)
        one, two = plain.step_batch(batch), mixed.step_batch(batch)
        assert torch.equal(one.reward, two.reward)
    assert one.metrics["losses/intrinsic"] > 0
    assert same_state(dict(plain.reward.state_dict()), dict(mixed.reward.bonuses[0].state_dict()))


def test_every_part_learns_from_its_own_loss():
    mixed = curiosity(f"0*{SMALL_RND} + 7*{SMALL_NNM}")
    batch = mixed.prepare(make_batch(make_spaces()))
    rng = torch.Generator().manual_seed(0)
    alone = sum(float(bonus.loss(batch, rng).detach()) for bonus in mixed.reward.bonuses)
    assert float(mixed.reward.loss(batch, torch.Generator().manual_seed(0)).detach()) == pytest.approx(alone)
    assert alone > 0


def test_parts_and_schedules_are_logged():
    mixed = curiosity(f"0.5*{SMALL_NNM} + schedule({SMALL_RND}, 2, 1, 48) + schedule({SMALL_RND}, 0, 1, 24)")
    batch = make_batch(make_spaces())  # 6 x 4 = 24 steps
    for first, second in ((2.0, 0.0), (1.5, 1.0), (1.0, 1.0), (1.0, 1.0)):
        metrics = mixed.step_batch(batch).metrics
        own = {key.removeprefix("intrinsic/part/"): value for key, value in metrics.items() if "part" in key}
        assert set(own) == {"nnm", "rnd", "schedule", "schedule_2"}
        assert (own["schedule"], own["schedule_2"]) == (first, second)
        wanted = 0.5 * own["nnm"] + (first + second) * own["rnd"]
        assert metrics["intrinsic/raw_mean"] == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("part", [SMALL_NNM, "episodic(feature_dim=8, hidden=8, k=2)"])
def test_resuming_inside_a_schedule_continues_to_the_bit(part):
    """Also with a part whose memory has the size of the number of environments, which only a batch tells."""
    expression = f"schedule({SMALL_RND}, 1, 0, 60)*clip({part}, 0, 5)"
    first, second = curiosity(expression, seed=5), curiosity(expression, seed=5)
    first.step_batch(make_batch(make_spaces(), seed=1))
    second.load_state_dict(first.state_dict())
    for seed in (2, 3):
        one, two = (each.step_batch(make_batch(make_spaces(), seed=seed)) for each in (first, second))
        assert torch.equal(one.reward, two.reward)
        assert one.metrics == two.metrics
    assert one.metrics["intrinsic/part/schedule"] == pytest.approx(1 - 48 / 60)
    assert same_state(first.state_dict(), second.state_dict())


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_never_give_up_is_the_product_of_its_two_factors(noise):
    """Networks, memories, statistics, optimiser and bonus of both ways of saying it, to the bit, over six batches."""
    whole = curiosity("ngu", feature_noise=noise)
    composed = curiosity("episodic * clip(rnd_alpha, 1, 5)", feature_noise=noise)
    pairs = list(zip((whole.reward.episodic, whole.reward.lifelong), composed.reward.bonuses, strict=True))
    for module, part in pairs:
        assert not same_state(dict(module.state_dict()), dict(part.state_dict()))
        part.load_state_dict(module.state_dict())
    assert whole.reward.needs_order and composed.reward.needs_order
    assert not composed.reward.signed, "held between 1 and 5, the factor that may be negative is not"
    unclipped, paid = [], 0.0
    for seed in range(6):
        batch = make_batch(make_spaces(), time=16, envs=3, seed=seed)
        if not noise:
            unclipped.append(whole.reward.lifelong.score(whole.prepare(batch)))
        one, two = whole.step_batch(batch), composed.step_batch(batch)
        assert torch.equal(one.intrinsic, two.intrinsic)
        assert torch.equal(one.reward, two.reward)
        assert one.metrics["losses/intrinsic"] == two.metrics["losses/intrinsic"]
        paid += float(one.intrinsic.sum())
    assert paid > 0
    assert noise or (torch.cat(unclipped) < 1).any(), "the clip must have had something to do"
    for module, part in pairs:
        assert same_state(dict(module.state_dict()), dict(part.state_dict()))


@pytest.mark.usefixtures("_plugin")
def test_nested_parts_go_back_to_whom_they_belong():
    mixed = curiosity(f"parted + parted(power=2) + {SMALL_RND}")
    batch = make_batch(make_spaces())
    metrics = mixed.step_batch(batch).metrics
    assert {"parted", "parted_2", "parted/length", "parted_2/length", "rnd"} == {
        key.removeprefix("intrinsic/part/") for key in metrics if "part/" in key
    }
    walked = [float(bonus.walked) for bonus in mixed.reward.bonuses[:2]]
    assert walked == [pytest.approx(24 * metrics["intrinsic/part/parted/length"], rel=1e-5)] * 2


@pytest.mark.usefixtures("_plugin")
def test_what_one_part_asks_the_whole_asks():
    assert not curiosity(SMALL_RND + "*1").reward.needs_order
    assert curiosity(f"{SMALL_RND} + parted").reward.needs_order
    assert not curiosity(f"{SMALL_RND} + parted").reward.signed
    assert curiosity(f"{SMALL_RND} - parted").reward.signed
    skilled = curiosity(f"{SMALL_RND} + skilled(width=4) + skilled(width=4)*2")
    assert skilled.skills is not None and skilled.skills.width == 4
    assert skilled.reward.signed
    step = skilled.step_batch(make_batch(make_spaces(), skills=skilled.skills))
    assert torch.isfinite(step.reward).all()
    assert not curiosity("clip(skilled, 0, 1)").reward.signed


def test_only_what_some_part_reads_is_prepared():
    assert curiosity(f"2*{SMALL_RND}").reward.traits.inputs == {"next_obs"}
    both = curiosity(f"{SMALL_RND} + {SMALL_NNM}")
    assert both.reward.traits.inputs == {"obs", "next_obs"}
    assert both.prepare(make_batch(make_spaces())).obs.shape == (6, 4, 6)


@pytest.mark.usefixtures("_plugin")
def test_refusals_name_the_part():
    with pytest.raises(ConfigError, match=r"parted\(power=2\): it measures lengths"):
        curiosity(f"{SMALL_RND} + parted(power=2)", obs="pixels")
    with pytest.raises(ConfigError, match=r"skilled and skilled_twin each ask the policy for skills"):
        curiosity("skilled + skilled_twin")
    with pytest.raises(ConfigError, match=r"parted\(power=13\): power 13 is unlucky"):
        resolve({"reward": "parted(power=13) + rnd"})


@pytest.mark.usefixtures("_plugin")
def test_an_agent_that_replays_is_refused_by_the_part_that_follows_episodes():
    assert resolve({"reward": "rnd + nnm", "agent": "replayer"}).agent_name == "replayer"
    with pytest.raises(ConfigError, match=r"'parted' follows episodes in order") as caught:
        resolve({"reward": "rnd + 2*parted", "agent": "replayer"})
    assert len(caught.value.problems) == 1


@pytest.mark.usefixtures("_plugin")
def test_names_with_dashes_and_tuples_of_numbers():
    tree = parse("parted(sizes=(3,)) + skilled_twin + parted(sizes=[1, 2])")
    assert to_text(tree) == "parted(sizes=(3,)) + skilled_twin + parted(sizes=(1, 2))"
    assert [leaf.name for leaf in leaves(tree)] == ["parted", "skilled-twin", "parted"]
    assert parse(to_text(tree)) == tree
    assert parse_reward("skilled-twin") == ("skilled-twin", {}), "a registered name comes before a minus"


def test_one_expression_is_one_configuration():
    texts = ["0.5*nnm+rnd", " .5 * nnm + rnd * 1"]
    configs = [resolve({"reward": text}) for text in texts]
    configs.append(resolve(flatten_json({"reward": {"name": "mix", "expression": "0.5*nnm + rnd"}})))
    configs.append(resolve(flatten_json({"reward": {"name": texts[0]}})))
    configs.append(resolve(flatten_json(json.loads(json.dumps(configs[0].to_json())))))
    assert len({config.digest() for config in configs}) == 1
    assert configs[0].to_json()["reward"] == {"name": "mix", "expression": "0.5*nnm + rnd"}


def test_expressions_replace_and_are_replaced_as_names_are():
    assert resolve({"reward": "nnm", "reward.n": 7}, {"reward": "nnm + rnd"}).reward_options == {
        "expression": "nnm + rnd"
    }
    assert resolve({"reward": "nnm + rnd"}, {"reward": "2*rnd"}).reward_options == {"expression": "2*rnd"}
    assert resolve({"reward": "nnm + rnd"}, {"reward": "rnd"}).reward_name == "rnd"
    assert resolve({"reward": "nnm + rnd"}, {"reward": "mix"}).reward_options == {"expression": "nnm + rnd"}


def test_wrong_expressions_are_told_beside_all_else():
    with pytest.raises(ConfigError) as caught:
        resolve({"reward": "nm + rnd", "steps": 0, "reward.n": 7})
    text = str(caught.value)
    assert len(caught.value.problems) == 3
    assert "'nnm'" in text and "run.steps" in text and "inside the expression: nnm(n=7)" in text
    with pytest.raises(ConfigError) as caught:
        curiosity("nm + rnd", n=7, obs_clipp=3)
    assert len(caught.value.problems) == 3
    with pytest.raises(ConfigError, match="'nnm'"):
        resolve({"reward": "mix", "reward.expression": "nm"})
