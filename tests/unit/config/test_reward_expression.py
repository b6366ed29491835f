"""Expressions of rewards as text: what is read, and what is refused and where."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intrigue.config.expression_tree import (
    to_text,
)
from intrigue.config.reward_expression import parse, parse_reward
from intrigue.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0.5 * nnm+rnd", "0.5*nnm + rnd"),
        ("rnd * 0.50", "0.5*rnd"),
        ("nnm - rnd", "nnm - rnd"),
        ("-nnm + rnd - -2*nnmc", "-nnm + rnd + 2*nnmc"),
        ("nnm-(rnd-nnmc)", "nnm - (rnd - nnmc)"),
        ("2*(3*rnd + 1)*rnd", "2*(3*rnd + 1)*rnd"),
        ("1 + rnd + 2", "rnd + 3"),
        ("sum(nnm, rnd, 1)", "nnm + rnd + 1"),
        ("product(2, nnm, sum(rnd))", "2*nnm*rnd"),
        ("clip(rnd, low=1, high=5.0)*nnm", "clip(rnd, 1, 5)*nnm"),
        ("schedule(rnd, 1, 0, 1e6)", "schedule(rnd, 1, 0, 1000000)"),
        ("gate(rnd, nnm+1, above=-1e-5)", "gate(rnd, nnm + 1, -1e-05)"),
        ("nnm(n=7.0, source='knn')", 'nnm(source="knn", n=7)'),
        ("\n nnm\n+\trnd \n", "nnm + rnd"),
        ("+rnd*1", "rnd"),
    ],
)
def test_two_ways_of_writing_are_one_text(text, canonical):
    assert to_text(parse(text)) == canonical
    assert to_text(parse(canonical)) == canonical


@pytest.mark.parametrize(
    ("text", "character", "words"),
    [
        ("0.5*nm + rnd", 5, "Did you mean 'nnm'?"),
        ("rnd + nnm(m=7)", 11, "unknown name 'm'"),
        ("rnd + nnm(n=0)", 11, "out of range"),
        ('nnm(form="rato")', 5, "Did you mean 'ratio'?"),
        ("nnm(n=size)", 7, "literal"),
        ("nnm(7)", 5, "by name"),
        ("nnm(**options)", 7, "by name"),
        ("nnm +", 6, "invalid syntax"),
        ("(nnm", 1, "never closed"),
        ("nnm rnd", 5, "invalid syntax"),
        ("nnm/2", 5, "Multiply"),
        ("nnm**2", 1, "no meaning"),
        ("rnd if nnm else 0", 1, "no meaning"),
        ("__import__('os').system('x')", 1, "no meaning"),
        ("(lambda: rnd)()", 1, "no meaning"),
        ("nnm.score", 1, "no meaning"),
        ("[rnd]", 1, "no meaning"),
        ("2*3", 1, "no reward"),
        ("mix + rnd", 1, "itself"),
        ("clip(rnd, 1)", 1, "clip(x, low, high)"),
        ("clip(rnd, 1, 5, 6)", 1, "clip(x, low, high)"),
        ("clip(rnd, 1, low=1, high=2)", 1, "clip(x, low, high)"),
        ("rnd + clip", 7, "clip(x, low, high)"),
        ("clip(rnd, 5, 1)", 11, "above high"),
        ("clip(rnd, 1, nnm)", 14, "finite number"),
        ("schedule(rnd, 1, 0, 0)", 21, "whole number"),
        ("schedule(rnd, 1, 0, 2.5)", 21, "whole number"),
        ("gate(rnd, 'x', 0)", 11, "finite number"),
        ("sum()", 1, "one or more"),
        ("rnd + True", 7, "finite number"),
        ("rnd + 1e999", 7, "finite number"),
        ("rnd*1e300*1e300", 1, "overflow"),
        ("ü + nm", 5, "'nnm'"),
        ("rnd + " * 400 + "rnd", 2000, "characters"),
        ("-" * 80 + "rnd", 52, "levels"),
    ],
)
def test_what_is_wrong_and_where(text, character, words):
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert any(f"character {character}: " in each.message and words in each.message for each in caught.value.problems)
    assert all(each.path == "reward" and len(each.message) < 600 for each in caught.value.problems)


def test_all_problems_come_together_from_left_to_right():
    with pytest.raises(ConfigError) as caught:
        parse("nm + rnd(hiden=3, feature_dim=0) - clip(rd, 2, 1)")
    messages = [each.message for each in caught.value.problems]
    assert ["'nm'" in messages[0], "'hidden'" in messages[1], "range" in messages[2]] == [True] * 3
    assert ["above" in messages[4], "'rnd'" in messages[3], len(messages)] == [True, True, 5]


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=40) | st.text("nmrd clipsum()+-*=.,0123'\"\\", max_size=40))
def test_no_text_breaks_the_reader(text):
    try:
        tree = parse(text)
    except ConfigError:
        return
    assert parse(to_text(tree)) == tree


@pytest.mark.parametrize("name", ["nnm", "nmm", "", "file.py:Nothing", "some/file.py", "a.b", "3", "../x", "\x1b[31m"])
def test_names_stay_names(name):
    assert parse_reward(name) == (name, {})


def test_expressions_become_the_reward_mix():
    assert parse_reward(" 0.5 * nnm+rnd") == ("mix", {"expression": "0.5*nnm + rnd"})
    assert parse_reward("0.5*(nnm") == ("mix", {"expression": "0.5*(nnm"}), "its problems are told with all others"
