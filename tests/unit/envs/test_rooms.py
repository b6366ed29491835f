"""Mazes, `rooms`, `noisy-tv` and `chain` against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intrigue.envs.chain import Chain, ChainConfig
from intrigue.envs.maze import DIRECTIONS, Maze, build_maze
from intrigue.envs.noisy_tv import BAND_PIXELS, SWITCH, NoisyTv, NoisyTvConfig
from intrigue.envs.rooms import Rooms, RoomsConfig, get_maze
from intrigue.errors import ConfigError

RIGHT, DOWN, LEFT, UP = (np.int64(each) for each in range(4))


def reachable(maze: Maze) -> set[int]:
    """Places a flood from the start reaches, walking over the wall array and not over the move table."""
    found, edge = {maze.start}, [maze.start]
    while edge:
        row, column = edge.pop()
        for down, right in DIRECTIONS:
            cell = (row + down, column + right)
            if not maze.walls[cell] and cell not in found:
                found.add(cell)
                edge.append(cell)
    return {maze.place_at(cell) for cell in found}


def way_to(maze: Maze, target: int) -> list[int]:
    """Actions of a shortest way from the start to a place."""
    ways: dict[int, list[int]] = {maze.place_at(maze.start): []}
    queue = list(ways)
    for place in queue:
        for action in range(4):
            ahead = maze.moves[place][action]
            if ahead not in ways:
                ways[ahead] = [*ways[place], action]
                queue.append(ahead)
    return ways[target]


@settings(max_examples=40, deadline=None)
@given(rooms=st.integers(1, 5), size=st.integers(1, 5), seed=st.integers(0, 10_000))
def test_a_maze_is_a_spanning_tree_of_rooms(rooms: int, size: int, seed: int) -> None:
    maze = build_maze(rooms, size, seed)
    side = rooms * (size + 1) + 1
    assert maze.walls.shape == (side, side)
    doors = rooms * rooms - 1
    assert maze.places == rooms * rooms * size * size + doors
    assert reachable(maze) == set(range(maze.places))
    for edge in (maze.walls[0], maze.walls[-1], maze.walls[:, 0], maze.walls[:, -1]):
        assert edge.all()
    assert [maze.place_at((int(row), int(column))) for row, column in maze.cells] == list(range(maze.places))
    assert (maze.cell_index[maze.walls] == -1).all()


def test_the_layout_of_a_seed_never_changes() -> None:
    drawn = "\n".join("".join("#" if wall else "." for wall in row) for row in build_maze(2, 2, 0).walls)
    assert drawn == GOLDEN_MAZE


# Rooms (0,0)-(1,0)-(1,1)-(0,1) in the order the first draws of random.Random(0) choose.
GOLDEN_MAZE = """\
#######
#..#..#
#..#..#
##.#.##
#.....#
#..#..#
#######"""


def test_seeds_change_the_doors() -> None:
    assert len({build_maze(4, 7, seed).walls.tobytes() for seed in range(20)}) == 20


def test_walls_block_and_places_follow_the_agent() -> None:
    env = Rooms(RoomsConfig(rooms=1, room_size=3))
    obs = env.reset(None)
    side = 5
    assert obs.shape == (2 * side,)
    np.testing.assert_array_equal(np.flatnonzero(obs), [1, side + 1])
    assert env.step(LEFT).place == 0
    assert env.step(UP).place == 0
    step = env.step(DOWN)
    assert step.place == 3
    np.testing.assert_array_equal(np.flatnonzero(step.obs), [2, side + 1])
    assert env.step(RIGHT).place == 4
    assert env.info.places == 9


def test_the_goal_ends_the_episode_with_reward_one_and_a_limit_truncates() -> None:
    cfg = RoomsConfig(rooms=2, room_size=2, max_steps=1000)
    maze = get_maze(cfg)
    way = way_to(maze, maze.place_at(maze.goal))
    env = Rooms(cfg)
    env.reset(None)
    steps = [env.step(np.int64(action)) for action in way]
    assert [step.reward for step in steps] == [0.0] * (len(way) - 1) + [1.0]
    assert [step.terminated for step in steps] == [False] * (len(way) - 1) + [True]
    late = Rooms(RoomsConfig(rooms=2, room_size=2, max_steps=len(way)))
    late.reset(None)
    last = [late.step(np.int64(action)) for action in way][-1]
    assert (last.terminated, last.truncated) == (True, False)
    idle = Rooms(RoomsConfig(max_steps=3))
    idle.reset(None)
    assert [idle.step(UP).truncated for _ in range(3)] == [False, False, True]


def test_the_default_limit_leaves_room_for_the_longest_way() -> None:
    maze = get_maze(RoomsConfig())
    assert len(way_to(maze, maze.place_at(maze.goal))) * 2 < RoomsConfig().max_steps


def test_pixels_show_walls_floor_goal_and_agent() -> None:
    env = Rooms(RoomsConfig(rooms=1, room_size=3, view="pixels"))
    image = env.reset(None)
    assert image.shape == (1, 84, 84)
    assert image.dtype == np.uint8
    # Five cells of 16 pixels, 80 in all, with a margin of two.
    assert [int(image[0, 2 + 16 * cell + 8, 2 + 16 * cell + 8]) for cell in range(5)] == [0, 255, 80, 160, 0]
    moved = env.step(DOWN).obs
    assert int(moved[0, 2 + 2 * 16 + 8, 2 + 16 + 8]) == 255
    assert int(image[0, 2 + 2 * 16 + 8, 2 + 16 + 8]) == 80, "an earlier observation must not change"


def test_a_maze_too_big_for_the_image_is_refused() -> None:
    Rooms(RoomsConfig(rooms=1, room_size=82, view="pixels"))
    with pytest.raises(ConfigError, match="does not fit into 84 pixels"):
        Rooms(RoomsConfig(rooms=1, room_size=83, view="pixels"))


@pytest.mark.parametrize("env", [Rooms(RoomsConfig()), NoisyTv(NoisyTvConfig()), Chain(ChainConfig())])
def test_pictures_are_rgb(env: Rooms | NoisyTv | Chain) -> None:
    env.reset(0)
    before = env.render()
    env.step(np.int64(1))
    after = env.render()
    assert before.dtype == np.uint8
    assert before.ndim == 3
    assert before.shape[2] == 3
    assert min(before.shape[:2]) >= 8
    assert not np.array_equal(before, after)


def test_only_the_fifth_action_redraws_the_screen() -> None:
    env = NoisyTv(NoisyTvConfig(screen_bits=16))
    first = env.reset(7)
    assert not first[-16:].any()
    np.testing.assert_array_equal(env.step(RIGHT).obs[-16:], np.zeros(16))
    switched = env.step(np.int64(SWITCH))
    assert switched.place == 1
    assert 0 < switched.obs[-16:].sum() < 16
    np.testing.assert_array_equal(env.step(DOWN).obs[-16:], switched.obs[-16:])
    screens = {env.step(np.int64(SWITCH)).obs[-16:].tobytes() for _ in range(50)}
    assert len(screens) > 45
    assert not env.reset(None)[-16:].any()


def test_the_screen_is_fair() -> None:
    env = NoisyTv(NoisyTvConfig(screen_bits=16, max_steps=10_000))
    env.reset(1)
    bits = np.stack([env.step(np.int64(SWITCH)).obs[-16:] for _ in range(2000)])
    # Five standard deviations of the mean of 2000 fair bits.
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 5 * 0.5 / 2000**0.5


def test_the_maze_part_of_noisy_tv_is_rooms() -> None:
    rooms, noisy = Rooms(RoomsConfig()), NoisyTv(NoisyTvConfig())
    rooms.reset(0)
    noisy.reset(0)
    for action in np.random.default_rng(0).integers(0, 4, size=300):
        plain, beside = rooms.step(action), noisy.step(action)
        np.testing.assert_array_equal(plain.obs, beside.obs[:-16])
        assert plain[1:] == beside[1:]


def test_noisy_pixels_hold_map_and_band() -> None:
    env = NoisyTv(NoisyTvConfig(rooms=1, room_size=3, view="pixels", screen_bits=4))
    env.reset(3)
    image = env.step(np.int64(SWITCH)).obs[0]
    band = image[-BAND_PIXELS:]
    assert set(np.unique(band)) <= {0, 255}
    assert (band == band[0]).all()
    np.testing.assert_array_equal(band[0].reshape(4, 21).max(axis=1), band[0].reshape(4, 21).min(axis=1))
    assert (image[:-BAND_PIXELS] == 255).sum() == 15 * 15, "one agent cell of 76 // 5 pixels"
    with pytest.raises(ConfigError, match="screen_bits"):
        NoisyTv(NoisyTvConfig(view="pixels", screen_bits=85))


def test_chain_rewards_and_ends() -> None:
    env = Chain(ChainConfig(length=4))
    np.testing.assert_array_equal(env.reset(None), [1, 0, 0, 0])
    left = env.step(np.int64(0))
    assert (left.reward, left.place, left.terminated) == (0.001, 0, False)
    steps = [env.step(np.int64(1)) for _ in range(3)]
    assert [(step.reward, step.place, step.terminated) for step in steps] == [
        (0.0, 1, False),
        (0.0, 2, False),
        (1.0, 3, True),
    ]
    env.reset(None)
    assert env.step(np.int64(1)).place == 1
    assert env.step(np.int64(0)).reward == 0.0, "pressing left elsewhere gives nothing"


def test_chain_truncates_after_length_plus_nine_steps() -> None:
    env = Chain(ChainConfig(length=4))
    env.reset(None)
    assert [env.step(np.int64(0)).truncated for _ in range(13)] == [False] * 12 + [True]
