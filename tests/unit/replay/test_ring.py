"""Rows read as words: every field as it is read from bytes, eagerly and compiled."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intrigue.replay.ring import RowReader, WordRowReader, fits_words, row_bytes, row_layout
from intrigue.replay.windows import as_tuples
from intrigue.spaces import ActionSpec, ObsSpec, Spaces


def states(obs: int, action: int, skill: int) -> Spaces:
    bounds = {"low": (-1.0,) * action, "high": (1.0,) * action}
    return Spaces(ObsSpec("vector", (obs,)), ActionSpec("continuous", **bounds), skill)


def packed(spaces: Spaces, count: int) -> torch.Tensor:
    """Rows of random numbers and flags, linked one to the next, and some to the next but one."""
    layout = row_layout(spaces, 0)
    rows = RowReader(torch.zeros(count, row_bytes(layout), dtype=torch.uint8), layout)
    draws = torch.Generator().manual_seed(0)
    for name, field in rows.fields.items():
        if field.dtype == torch.bool:
            field.copy_(torch.rand(field.shape, generator=draws) < 0.5)
        elif name in ("back", "ahead"):
            field.copy_(torch.randint(1, 3, field.shape, generator=draws))
        else:
            field.copy_(torch.randn(field.shape, generator=draws))
    return rows.packed


@settings(deadline=None, max_examples=40)
@given(obs=st.integers(1, 9), action=st.integers(1, 5), skill=st.integers(0, 3), count=st.integers(1, 20))
def test_words_are_read_as_bytes_are(obs, action, skill, count):
    spaces = states(obs, action, skill)
    layout, memory = row_layout(spaces, 0), packed(spaces, count)
    as_bytes, as_words = RowReader(memory, layout), WordRowReader(memory, layout)
    asked = torch.arange(3 * count).view(3, count) * 7  # also of later laps
    theirs, ours = as_bytes.get_all(asked), as_words.get_all(asked)
    assert theirs.keys() == ours.keys()
    for name, field in theirs.items():
        for found in (ours[name], as_words.get(name, asked)):
            assert found.dtype == field.dtype
            assert found.shape == field.shape
            assert torch.equal(found, field)


def test_what_is_written_is_read():
    spaces = states(3, 2, 0)
    rows = WordRowReader(packed(spaces, 5), row_layout(spaces, 0))
    rows.fields["frame"][2] = torch.tensor([1.5, -2.0, 3.25])
    rows.fields["terminated"][2] = True
    rows.fields["truncated"][2] = False
    found = rows.get_all(torch.tensor([2]))
    assert found["frame"].tolist() == [[1.5, -2.0, 3.25]]
    assert found["terminated"].tolist() == [True]
    assert found["truncated"].tolist() == [False]


def test_pictures_and_wide_numbers_do_not_fit():
    assert fits_words(row_layout(states(4, 2, 1), 0))
    pictures = Spaces(ObsSpec("pixels", (4, 84, 84)), ActionSpec("discrete", sizes=(6,)), 0)
    assert not fits_words(row_layout(pictures, 4))
    assert not fits_words({"frame": ((3,), torch.float64)})
    assert not fits_words({"flags": ((2,), torch.bool)})


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 3])
def test_a_compiled_draw_is_the_same_to_the_bit(steps):
    spaces = states(5, 2, 0)
    layout, memory = row_layout(spaces, 0), packed(spaces, 40)
    start = torch.arange(30)
    plain = as_tuples(RowReader(memory, layout), start, steps, 0, 0.99)
    rows = WordRowReader(memory, layout)
    fused = torch.compile(lambda begins: as_tuples(rows, begins, steps, 0, 0.99))(start)
    for each in dataclasses.fields(plain[0]):
        assert torch.equal(getattr(plain[0], each.name), getattr(fused[0], each.name)), each.name
    assert torch.equal(plain[1]["discount"], fused[1]["discount"])
