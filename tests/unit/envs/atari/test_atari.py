"""`atari/<Game>`: names, protocols, sticky actions, ends of episodes, raw scores, Gymnasium's own checker."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from conftest import TINY
from intrigue.cli import main
from intrigue.envs.atari.games import check_name
from intrigue.envs.atari.gym_env import make_gym
from intrigue.envs.atari.protocols import PROTOCOLS
from intrigue.envs.make import make_env
from intrigue.envs.pool.config import PoolConfig
from intrigue.envs.pool.pool import make_pool

FRAMES = 4


def recorded(env: Any) -> list[list[int]]:
    """Every list of actions the emulator is shown from now on."""
    shown: list[list[int]] = []
    play = env._emulator.play

    def record(actions: list[int]) -> Any:
        shown.append(actions)
        return play(actions)

    env._emulator.play = record
    return shown


def test_known_names_pass_and_unknown_ones_name_the_nearest() -> None:
    assert check_name("Breakout") == check_name("UpNDown") == []
    for wrong, right in (("Brekout", "Breakout"), ("breakout", "Breakout"), ("up_n_down", "UpNDown")):
        (text,) = check_name(wrong)
        assert f"Did you mean 'atari/{right}'?" in text and repr(wrong) in text
    assert "Did you mean" not in check_name("")[0]


def test_a_wrong_game_exits_2_without_loading_the_emulator(tmp_path: Path) -> None:
    code = (
        "import sys; from intrigue.cli import main; "
        "code = main(['train', 'atari/Brekout', '--out', 'run']); "
        "assert 'ale_py' not in sys.modules and 'torch' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "atari/Breakout" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_missing_extra_says_the_command_that_installs_it(monkeypatch: Any, capsys: Any, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)  # How Python itself marks a module that cannot be imported.
    assert main(["train", "atari/Breakout", "--out", str(tmp_path / "run")]) == 2
    assert "pip install 'intrigue[atari]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_protocols_have_the_published_values() -> None:
    rows = {name: (p.sticky, p.noop_max, p.max_frames, p.life_ends, p.resize) for name, p in PROTOCOLS.items()}
    assert rows == {
        "disagreement": (0.25, 0, 18_000, False, "bilinear"),
        "large-scale-curiosity": (0.0, 30, 18_000, False, "bilinear"),
        "rnd": (0.25, 0, 18_000, False, "area"),
        "dqn": (0.0, 30, 108_000, True, "area"),
    }
    assert all((p.skip, p.stack) == (4, 4) for p in PROTOCOLS.values())
    env = make_env("atari/Breakout", {})
    assert env.info.frames_per_step == 4
    assert env.info.action_space.n == 4
    assert make_env("atari/Breakout", {"full_action_space": True}).info.action_space.n == 18


def test_gymnasiums_own_checker_passes() -> None:
    env = make_gym("Breakout", render_mode="rgb_array")
    check_env(env, skip_render_check=True)
    first, _ = env.reset(seed=3)
    kept = first.copy()
    for _ in range(80):
        env.step(1)
    np.testing.assert_array_equal(first, kept)
    assert env.render().shape == (210, 160, 3)
    np.testing.assert_array_equal(env.reset(seed=3)[0], kept)


@pytest.mark.parametrize("game", ["Breakout", "Assault"])
def test_a_seed_begins_everything_anew_also_where_a_reset_remembers(game: str) -> None:
    def trace(env: Any) -> list[Any]:
        seen = [env.reset(11).copy()]
        for action in np.random.default_rng(0).integers(env.info.action_space.n, size=40):
            step = env.step(action)
            seen += [step.obs.copy(), step.reward]
        return seen

    env, other = make_env(f"atari/{game}", {}), make_env(f"atari/{game}", {})
    other.reset(5)
    for _ in range(150):
        other.step(np.array(1))
    other.reset(None)
    assert all(np.array_equal(a, b) for a, b in zip(trace(env), trace(other), strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(trace(env), trace_with(env, 12), strict=True))


def trace_with(env: Any, seed: int) -> list[Any]:
    seen = [env.reset(seed).copy()]
    for action in np.random.default_rng(0).integers(env.info.action_space.n, size=40):
        step = env.step(action)
        seen += [step.obs.copy(), step.reward]
    return seen


def test_actions_stick_with_probability_a_quarter_per_frame() -> None:
    env = make_env("atari/Breakout", {})
    env.reset(0)
    shown = recorded(env)
    actions = np.tile([2, 3], 900)  # Right, left: every step asks for another action than the one before.
    for action in actions:
        if env.step(action).terminated:
            env.reset(None)
    asked = np.array([env._actions[action] for action in actions])
    stuck = np.array(shown) != asked[:, None]
    for frame in range(FRAMES):
        # Frame k still shows an older action only if k + 1 draws in a row stuck.
        chance = 0.25 ** (frame + 1)
        deviation = abs(stuck[:, frame].mean() - chance) / np.sqrt(chance * (1 - chance) / len(actions))
        assert deviation < 4, (frame, stuck[:, frame].mean())
    executed = np.array(shown).reshape(-1)
    wrong = np.flatnonzero(executed[1:] != np.repeat(asked, FRAMES)[1:])
    assert (executed[1:][wrong] == executed[:-1][wrong]).all(), "what is shown instead is the frame's before"


def test_before_the_first_frame_the_last_action_is_the_noop() -> None:
    env = make_env("atari/Breakout", {"max_episode_steps": 1})
    shown = recorded(env)
    for episode in range(120):
        env.reset(0 if episode == 0 else None)
        env.step(np.array(3))
    first = [frames[0] for frames in shown]
    assert set(first) == {0, env._actions[3]}
    assert 12 <= first.count(0) <= 50


@pytest.mark.parametrize("protocol", ["large-scale-curiosity", "dqn"])
def test_without_stickiness_actions_arrive_and_games_begin_with_1_to_30_noops(protocol: str) -> None:
    env = make_env("atari/Breakout", {"protocol": protocol, "max_episode_steps": 1})
    shown = recorded(env)
    counts = []
    for episode in range(100):
        shown.clear()
        env.reset(0 if episode == 0 else None)
        assert all(actions == [0] for actions in shown)
        counts.append(len(shown))
        env.step(np.array(2))
        assert shown[-1] == [env._actions[2]] * FRAMES
    assert min(counts) <= 3 and max(counts) == 30 and min(counts) >= 1
    assert 12 < np.mean(counts) < 19


@pytest.mark.parametrize(
    ("protocol", "limit"), [("disagreement", 4500), ("large-scale-curiosity", 4500), ("dqn", 27_000)]
)
def test_an_episode_is_cut_off_at_the_protocols_limit_and_not_a_step_before(protocol: str, limit: int) -> None:
    env = make_env("atari/Freeway", {"protocol": protocol})
    env.reset(0)
    env.restore({**env.snapshot(), "time": limit - 2})
    for expected in (False, True):
        step = env.step(np.array(0))
        assert (step.terminated, step.truncated) == (False, expected)
    env.reset(None)
    assert not env.step(np.array(0)).truncated


def test_under_dqn_a_lost_life_ends_the_episode_and_the_game_goes_on() -> None:
    env = make_env("atari/Breakout", {"protocol": "dqn"})
    env.reset(2)
    rng, lives, left = np.random.default_rng(0), [], 5
    for _ in range(3000):
        step = env.step(rng.integers(4))
        assert not step.truncated
        if step.terminated:
            lives.append(env._emulator.lives)
            picture = step.obs[-1].copy()
            first = env.reset(None)
            if lives[-1]:
                np.testing.assert_array_equal(first, np.stack([picture] * 4))  # the same game, from where it stood
            assert env._emulator.lives == (lives[-1] or left)
        if len(lives) == 6:
            break
    assert lives == [4, 3, 2, 1, 0, 4]


def test_a_whole_game_gives_its_raw_score_and_the_pool_goes_on_with_the_next() -> None:
    """Q*bert pays 25 for a cube: scores are the game's own, and the end is the game's, not a life's."""
    pool = make_pool("atari/Qbert", {}, PoolConfig(num_envs=2, workers=0), seed=1)
    lone = make_env("atari/Qbert", {})
    start = pool.reset().copy()
    rng, totals, running = np.random.default_rng(0), [], np.zeros(2)
    for _ in range(900):
        step = pool.step(rng.integers(6, size=2))
        running += step.reward
        for i in np.flatnonzero(step.terminated):
            totals.append(running[i])
            running[i] = 0
            np.testing.assert_array_equal(step.obs[i], start[i])
            assert not np.array_equal(step.next_obs[i], step.obs[i])
        if totals:
            break
    assert totals and all(total >= 25 and total % 25 == 0 for total in totals)
    assert lone.reset(0).shape == (4, 84, 84)
    pool.close()


def test_training_logs_raw_scores_and_frames(tmp_path: Path) -> None:
    layer = {
        **{key: value for key, value in TINY.items() if not key.startswith(("env", "reward", "agent"))},
        "agent": "random", "reward": "none", "env.max-episode-steps": 60, "pool.num_envs": 2, "steps": 260,
    }  # fmt: skip
    arguments = [f"--{key.replace('_', '-')}={value}" for key, value in layer.items()]
    assert main(["train", "atari/SpaceInvaders", "--out", str(tmp_path / "run"), "--quiet", *arguments]) == 0
    with (tmp_path / "run" / "episodes.csv").open() as file:
        rows = list(csv.DictReader(file))
    returns = [float(row["episodic_return"]) for row in rows]
    assert len(rows) >= 4 and max(returns) > 1 and all(each % 5 == 0 for each in returns)
    assert all(int(row["length"]) == 60 for row in rows)
    assert int(rows[0]["frame"]) == 4 * int(rows[0]["step"])
