"""Pictures of the Atari: filters by hand, exact sums, frame by frame against a slow pipeline, beside Pillow."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from ale_py import ALEInterface, LoggerMode, roms
from PIL import Image

from atari_by_hand import TEN_GAMES, AtariByHand, axis_weights, picture
from intrigue.envs.atari.frame_stack import STRIP, FrameStack
from intrigue.envs.atari.games import FIFTY_SEVEN, ROM_ID_OF, ROM_IDS, game_name
from intrigue.envs.atari.palette import make_palette
from intrigue.envs.atari.protocols import PROTOCOLS
from intrigue.envs.atari.screen import AxisFilter, Screen, filter_weights, grey_table
from intrigue.envs.make import make_env

KINDS = ("bilinear", "area")


def test_weights_of_210_rows_are_those_computed_by_hand() -> None:
    triangle, area = filter_weights(210, 84, "bilinear"), filter_weights(210, 84, "area")
    # A step of 2.5 rows: middles at 1.25, 3.75, 6.25; the triangle reaches 2.5 rows to either side.
    assert triangle[0, :5].tolist() == [7, 9, 5, 1, 0]
    assert triangle[1, :7].tolist() == [0, 1, 5, 9, 7, 3, 0]
    assert triangle[2, 3:10].tolist() == [0, 3, 7, 9, 5, 1, 0]
    assert triangle[83, -5:].tolist() == [0, 1, 5, 9, 7]
    assert area[0, :4].tolist() == [2, 2, 1, 0]
    assert area[1, :6].tolist() == [0, 0, 1, 2, 2, 0]
    assert set(area.sum(axis=1)) == {5}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [84, 160, 210, 250])
def test_blocks_hold_the_whole_filter(kind: str, size: int) -> None:
    banded, whole = AxisFilter(size, kind), axis_weights(size, kind)
    values = np.random.default_rng(0).integers(0, 256, size)
    padded = np.pad(values, banded.pad)
    windows = [padded[b * banded.stride : b * banded.stride + banded.window] for b in range(banded.blocks)]
    sums = np.concatenate([banded.weights[b] @ windows[b] for b in range(banded.blocks)])
    np.testing.assert_allclose(sums / banded.sums, whole @ values, rtol=1e-12)


def test_grey_is_the_luminance_of_the_brighter_channel_of_two_colours() -> None:
    colours = np.zeros((256, 3), np.uint8)
    colours[2], colours[4] = (200, 10, 30), (100, 90, 30)
    table = grey_table(colours, "area")
    assert table[2, 4] == table[4, 2] == round(0.299 * 200 + 0.587 * 90 + 0.114 * 30)
    assert table[2, 2] == round(0.299 * 200 + 0.587 * 10 + 0.114 * 30) < table[2, 4] > table[4, 4]
    assert grey_table(colours, "bilinear")[2, 4] == int(16 * (0.299 * 200 + 0.587 * 90 + 0.114 * 30))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(210, 160), (214, 160)])
def test_random_screens_equal_the_definition_whatever_came_before(kind: str, size: tuple[int, int]) -> None:
    rng, colours = np.random.default_rng(3), make_palette("breakout")
    screen, out = Screen(colours, *size, kind), np.empty((84, 84), np.uint8)
    older = newer = np.zeros(size, np.uint8)
    for changed in (1.0, 0.3, 0.001, 0.0, 1.0):
        old_mask, new_mask = rng.random((2, *size)) < changed
        older = np.where(old_mask, rng.integers(0, 128, size) * 2, older).astype(np.uint8)
        newer = np.where(new_mask, rng.integers(0, 128, size) * 2, newer).astype(np.uint8)
        screen(older, newer, out)
        np.testing.assert_array_equal(out, picture([colours[older], colours[newer]], kind))
    screen(newer, older, out)
    np.testing.assert_array_equal(out, picture([colours[older], colours[newer]], kind))
    flat = np.full(size, 14, np.uint8)  # A white of (236, 236, 236) stays what it is, up to the edges.
    screen(flat, flat, out)
    assert (out == 236).all()


@pytest.mark.parametrize(
    ("protocol", "game"), [*(("disagreement", game) for game in TEN_GAMES), ("dqn", "Breakout"), ("rnd", "Seaquest")]
)
def test_every_frame_equals_the_slow_pipeline(protocol: str, game: str) -> None:
    rules = PROTOCOLS[protocol]
    slow = AtariByHand(ROM_ID_OF[game], rules.sticky, rules.noop_max, rules.resize)
    env = make_env(f"atari/{game}", {"protocol": protocol})
    np.testing.assert_array_equal(env.reset(7), slow.reset(7))
    total, actions = 0.0, np.random.default_rng(1).integers(len(slow.actions), size=50)
    for action in actions:
        step = env.step(action)
        obs, score, over = slow.step(action)
        np.testing.assert_array_equal(step.obs, obs)
        assert step.reward == score
        assert over <= step.terminated  # A lost life ends an episode under `dqn` too.
        total += score
        if over:
            np.testing.assert_array_equal(env.reset(None), slow.reset(None))
    assert env.info.action_space.n == len(slow.actions)


@pytest.mark.parametrize("game", ["Breakout", "Seaquest"])
def test_pillow_gives_the_same_picture_up_to_one_level(game: str) -> None:
    env = make_env(f"atari/{game}", {})
    env.reset(0)
    other, last = 0, None
    for action in np.random.default_rng(2).integers(env.info.action_space.n, size=40):
        obs = env.step(action).obs[-1]
        frames = make_palette(ROM_ID_OF[game])[np.stack([env._emulator.older, env._emulator.newer])].max(axis=0)
        luminance = (frames.astype(np.float32) * np.array([0.299, 0.587, 0.114], np.float32)).sum(axis=-1)
        theirs = np.array(Image.fromarray(luminance).resize((84, 84), Image.Resampling.BILINEAR)).astype(np.uint8)
        difference = np.abs(obs.astype(int) - theirs)
        assert difference.max() <= 1
        other, last = other + (difference > 0).mean(), obs
    assert other / 40 < 0.05
    assert last is not None and last.std() > 5


def colours_agree(rom_id: str, frames: int) -> None:
    """The palette gives ale-py's own coloured screen, through random play."""
    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale, rng = ALEInterface(), np.random.default_rng(0)
    ale.loadROM(roms.get_rom_path(rom_id))
    actions, colours = ale.getMinimalActionSet(), make_palette(rom_id)
    for frame in range(frames):
        ale.act(actions[rng.integers(len(actions))])
        if frame % 20 == 0:
            np.testing.assert_array_equal(colours[ale.getScreen()], ale.getScreenRGB())


@pytest.mark.parametrize("rom_id", ["breakout", "qbert", "air_raid", "pacman"])
def test_colours_are_the_emulators(rom_id: str) -> None:
    colours_agree(rom_id, 200)


@pytest.mark.slow
@pytest.mark.parametrize("rom_id", ROM_IDS)
def test_colours_are_the_emulators_in_every_game(rom_id: str) -> None:
    colours_agree(rom_id, 1500)


def test_an_observation_never_changes_after_it_was_handed_out() -> None:
    stack = FrameStack(4)
    stack.fill(np.full((84, 84), 9, np.uint8))
    handed = [stack.window]
    for value in range(3 * STRIP):
        stack.next_slot()[...] = value % 251
        handed.append(stack.window)
    seen = [9, 9, 9, 9, *(value % 251 for value in range(3 * STRIP))]
    for index, window in enumerate(handed):
        assert window.shape == (4, 84, 84) and window.flags.c_contiguous
        assert window[:, 0, 0].tolist() == window[:, 83, 83].tolist() == seen[index : index + 4]


def test_the_lists_of_games_agree_with_the_emulators() -> None:
    assert set(ROM_IDS) == set(roms.get_all_rom_ids()) - {"combat", "joust", "maze_craze", "warlords"}
    assert len(set(FIFTY_SEVEN)) == 57 and set(FIFTY_SEVEN) <= set(ROM_IDS)
    assert [game_name(each) for each in ("up_n_down", "montezuma_revenge")] == ["UpNDown", "MontezumaRevenge"]


def test_screens_alike_share_tables_but_not_between_threads() -> None:
    """Two threads that shared their room would write into each other's pictures."""
    rng = np.random.default_rng(0)
    screens = rng.integers(0, 128, (2, 40, 2, 210, 160), np.uint8) * 2
    draw = [Screen(make_palette("breakout"), 210, 160, "bilinear") for _ in range(2)]

    def pictures(thread: int) -> np.ndarray:
        out = np.empty((40, 84, 84), np.uint8)
        for pair, row in zip(screens[thread], out, strict=True):
            draw[thread](pair[0], pair[1], row)
        return out

    alone = [pictures(thread) for thread in range(2)]
    with ThreadPoolExecutor(2) as threads:
        together = list(threads.map(pictures, range(2)))
    for left, right in zip(alone, together, strict=True):
        np.testing.assert_array_equal(left, right)
    buffers = draw[0]._buffers
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(lambda: buffers.own).result() is not buffers.own
    assert draw[1]._buffers.own is buffers.own
