"""Pictures of compiled code are NumPy's to the byte: noise, screens as games draw them, shortcuts, and without it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atari_by_hand import picture
from intrigue.envs.atari import native_screen
from intrigue.envs.atari.frame_stack import STRIP, FrameStack
from intrigue.envs.atari.games import FIFTY_SEVEN
from intrigue.envs.atari.native_screen import NativeScreen, Tables, band, make_screen
from intrigue.envs.atari.palette import make_palette
from intrigue.envs.atari.screen import Screen, filter_weights
from intrigue.envs.make import make_env

KINDS = ("bilinear", "area")
HEIGHTS = (210, 214, 220, 230, 250)  # Of all games; the sums of 214 and above need float64 in `bilinear`.


def both(colours: np.ndarray, height: int, kind: str) -> tuple[NativeScreen, Screen]:
    native = make_screen(colours, height, 160, kind)
    assert isinstance(native, NativeScreen), "this machine has no C compiler, so nothing would be compared"
    return native, Screen(colours, height, 160, kind)


def agree(screens: tuple[NativeScreen, Screen], older: np.ndarray, newer: np.ndarray) -> np.ndarray:
    found, other_way, expected = np.full((3, 84, 84), 99, np.uint8)
    screens[0](older, newer, found)
    screens[0](newer, older, other_way)
    screens[1](older, newer, expected)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(other_way, expected)  # Which is older makes no difference.
    return found


def drawn(rng: np.random.Generator, height: int) -> np.ndarray:
    """A screen as a console draws it: bands of one row, repeated; a row is runs of one colour, and a few objects."""
    rows = np.repeat(rng.integers(0, 256, (20, 20), np.uint8), 8, axis=1)
    screen = rows[np.sort(rng.integers(0, 20, height))]
    for _ in range(6):
        y, x = rng.integers(height), rng.integers(160)
        screen[y : y + rng.integers(1, 12), x : x + rng.integers(1, 9)] = rng.integers(256)
    return screen


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("height", HEIGHTS)
def test_every_kind_of_screen_gives_the_same_bytes(kind: str, height: int) -> None:
    rng, screens = np.random.default_rng(height), both(make_palette("breakout"), height, kind)
    for changed in (1.0, 0.3, 0.001, 0.0):
        older = rng.integers(0, 256, (height, 160), np.uint8)
        newer = np.where(rng.random(older.shape) < changed, rng.integers(0, 256, older.shape, np.uint8), older)
        agree(screens, older, newer)
    for _ in range(20):
        older, newer = drawn(rng, height), drawn(rng, height)
        agree(screens, older, newer)
        agree(screens, older, np.where(rng.random((height, 1)) < 0.1, newer, older))
    for colour in range(256):  # A single colour stays what it is, and no sum overflows in white.
        flat = np.full((height, 160), colour, np.uint8)
        assert len(np.unique(agree(screens, flat, flat))) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("height", [210, 250])
def test_the_palettes_of_all_57_games_and_of_european_ones(kind: str, height: int) -> None:
    rng = np.random.default_rng(1)
    different = {make_palette(rom_id).tobytes() for rom_id in (*FIFTY_SEVEN, "air_raid", "pacman")}
    # And one in which black and white stand side by side, where rounding to the wrong side would be seen at once.
    different.add(np.repeat(rng.choice(np.array([0, 255], np.uint8), 256), 3).tobytes())
    assert len(different) == 3
    for colours in different:
        screens = both(np.frombuffer(colours, np.uint8).reshape(256, 3), height, kind)
        for _ in range(10):
            agree(screens, *rng.integers(0, 256, (2, height, 160), np.uint8))
            agree(screens, drawn(rng, height), drawn(rng, height))


@pytest.mark.parametrize("kind", KINDS)
def test_the_definition_itself(kind: str) -> None:
    rng, colours = np.random.default_rng(5), make_palette("breakout")
    screens = both(colours, 210, kind)
    for _ in range(3):
        older, newer = drawn(rng, 210), drawn(rng, 210)
        expected = picture([colours[older], colours[newer]], kind)
        np.testing.assert_array_equal(agree(screens, older, newer), expected)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 40)), min_size=1, max_size=60),
    height=st.sampled_from(HEIGHTS),
    kind=st.sampled_from(KINDS),
)
def test_repeated_rows_take_no_wrong_shortcut(rows: list[tuple[int, int, int]], height: int, kind: str) -> None:
    """Rows of four sorts, each alone in one screen or in both, for any number of lines: nothing else is repeated."""
    sorts = np.random.default_rng(0).integers(0, 256, (4, 160), np.uint8)
    sorts[2], sorts[3] = sorts[0], 14
    sorts[2, 159] ^= 2  # Unlike the first in its last pixel only.
    older = np.concatenate([np.tile(sorts[one], (count, 1)) for one, _, count in rows])
    newer = np.concatenate([np.tile(sorts[two], (count, 1)) for _, two, count in rows])
    lines = np.arange(height) % len(older)
    agree(both(make_palette("breakout"), height, kind), older[lines], newer[lines])


def test_a_single_pixel_is_seen_wherever_it_is() -> None:
    screens = both(make_palette("breakout"), 210, "bilinear")
    black = np.zeros((210, 160), np.uint8)
    for y, x in [(0, 0), (0, 159), (209, 0), (209, 159), (104, 80), (1, 7), (208, 152)]:
        white = black.copy()
        white[y, x] = 14
        assert agree(screens, black, white).any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [160, 210, 250])
def test_bands_hold_the_whole_filter(kind: str, size: int) -> None:
    weights = filter_weights(size, 84, kind)
    first, part = band(weights)
    again = np.zeros_like(weights)
    for row, start, each in zip(again, first, part, strict=True):
        row[start : start + len(each)] = each
    np.testing.assert_array_equal(again, weights)
    assert (np.diff(first) >= 0).all() and first[0] == 0 and first[-1] + part.shape[1] == size


@pytest.mark.parametrize("kind", KINDS)
def test_processors_without_our_instructions_give_the_same_bytes(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(native_screen, "FLAGS", ("-U__SSSE3__",))
    function, rng = native_screen.picture_function.__wrapped__(), np.random.default_rng(2)
    assert function is not None
    for height in (210, 250):
        tables = Tables(make_palette("breakout").tobytes(), height, kind)
        screens = NativeScreen(function, tables), Screen(make_palette("breakout"), height, 160, kind)
        agree(screens, *rng.integers(0, 256, (2, height, 160), np.uint8))
        agree(screens, drawn(rng, height), drawn(rng, height))


def test_screens_of_other_kinds_are_left_to_numpy() -> None:
    assert isinstance(make_screen(make_palette("breakout"), 210, 152, "area"), Screen)
    assert isinstance(make_screen(make_palette("breakout"), 320, 160, "bilinear"), Screen)  # Eight rows to one.
    assert Tables(make_palette("breakout").tobytes(), 250, "bilinear").down == 6


def test_an_address_is_the_next_slot() -> None:
    by_slot, by_address = FrameStack(4), FrameStack(4)
    for _ in range(2 * STRIP):
        slot = by_slot.next_slot()
        address = by_address.next_address()
        assert slot.shape == by_slot.window.shape[1:]
        assert address == by_address.window[-1].ctypes.data
        assert by_address._end == by_slot._end


@pytest.mark.parametrize("protocol", ["disagreement", "dqn"])
def test_without_a_compiler_a_game_looks_the_same(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = make_env("atari/Breakout", {"protocol": protocol})
    monkeypatch.setattr(native_screen, "picture_function", lambda: None)
    plain = make_env("atari/Breakout", {"protocol": protocol})
    assert isinstance(compiled._screen, NativeScreen) and isinstance(plain._screen, Screen)
    np.testing.assert_array_equal(compiled.reset(3), plain.reset(3))
    for action in np.random.default_rng(0).integers(4, size=300):
        one, other = compiled.step(action), plain.step(action)
        assert one[1:] == other[1:]
        np.testing.assert_array_equal(one.obs, other.obs)
        if one.terminated:
            np.testing.assert_array_equal(compiled.reset(None), plain.reset(None))
    plain.restore(compiled.snapshot())  # Nor does a saved game tell which it was.
    np.testing.assert_array_equal(plain.step(np.int64(1)).obs, compiled.step(np.int64(1)).obs)


def test_a_broken_compiler_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", "false")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert native_screen.picture_function.__wrapped__() is None
