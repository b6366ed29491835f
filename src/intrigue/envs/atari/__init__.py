"""The Atari 2600 through ale-py: `atari/Breakout` and a hundred games more, under a named published protocol.

    observation   (4, 84, 84) uint8: the last four pictures, each the brighter of two frames, grey (`screen`)
    action        one of the game's minimal set, repeated for four frames
    reward        the score gained in those frames, as the game counts it, never clipped
    episode       a whole game, or a life under `dqn` (evaluations play on); cut off (truncated) at the limit of frames

Sticky actions are drawn per frame from the environment's own stream: with probability p the action of the frame
before is repeated, whatever the agent chose; before the first frame of a game that action is the no-op. Resume is exact
to the pixel (`emulator`). Needs the extra `atari`; `protocols` has every value with its source.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

import gymnasium as gym
import numpy as np

from intrigue.envs.atari.frame_stack import FrameStack
from intrigue.envs.atari.games import ROM_ID_OF, check_name
from intrigue.envs.atari.protocols import PROTOCOLS, SIDE
from intrigue.envs.base import Env, EnvInfo, Step
from intrigue.envs.registry import register_env
from intrigue.fields import NonNegativeInt
from intrigue.spaces import Array
from intrigue.state import State

CPUINFO = Path("/proc/cpuinfo")
AVX2_KERNELS = {"OPENBLAS_CORETYPE": "Haswell"}  # OpenBLAS's name of its 256-bit kernels; they need AVX2 and FMA.
NOOP = 0  # The emulator's own number of the action that does nothing.


def prefer_avx2_blas() -> dict[str, str]:
    """Environment variables that select OpenBLAS's 256-bit kernels where it would use 512-bit ones; else none.

    A 512-bit kernel lowers the core's clock or switches its wide units, which slows down the code that runs next: after
    one picture (two small products, 15 µs) the four emulator frames that follow took 450 µs instead of 385 (Xeon Ice
    Lake, 2.8 GHz). With the 256-bit kernels they do not.
    """
    try:
        text = CPUINFO.read_text()
    except OSError:
        return {}
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "").split()
    return dict(AVX2_KERNELS) if {"avx512f", "avx2", "fma"} <= set(flags) else {}


@dataclass(frozen=True)
class AtariConfig:
    """Settings of `atari`."""

    protocol: Literal["disagreement", "large-scale-curiosity", "rnd", "dqn"] = "disagreement"  # paper: Pathak et al.
    max_episode_steps: NonNegativeInt = 0  # agent steps of four frames; 0: the protocol's limit of frames
    full_action_space: bool = False  # all 18 actions instead of the game's minimal set; paper's code: minimal


@register_env("atari", config=AtariConfig)
@final
class Atari(Env):
    """One game. The emulator is imported when it is built, so that names can be checked without it."""

    examples = ("Breakout",)
    worker_variables = prefer_avx2_blas()  # Pictures are exact in any kernel (`screen`).

    def __init__(self, cfg: AtariConfig, name: str) -> None:
        from intrigue.envs.atari.emulator import Emulator
        from intrigue.envs.atari.native_screen import make_screen
        from intrigue.envs.atari.palette import make_palette

        self._protocol = PROTOCOLS[cfg.protocol]
        self._emulator = Emulator(ROM_ID_OF[name])
        height, width = self._emulator.height, self._emulator.width
        self._screen = make_screen(make_palette(ROM_ID_OF[name]), height, width, self._protocol.resize)
        self._draw = self._screen.bind(self._emulator.older, self._emulator.newer)
        self._actions = list(range(18)) if cfg.full_action_space else self._emulator.minimal_actions
        self._max_steps = cfg.max_episode_steps or self._protocol.max_frames // self._protocol.skip
        self._stack = FrameStack(self._protocol.stack)
        self._rng = np.random.default_rng(0)
        self._last_action, self._time, self._lives = NOOP, 0, 0
        self._game_continues = False  # A life was lost and others are left: the next episode continues this game.
        self.info = EnvInfo(
            gym.spaces.Box(0, 255, (self._protocol.stack, SIDE, SIDE), np.uint8),
            gym.spaces.Discrete(len(self._actions)),
            frames_per_step=self._protocol.skip,
            stack=self._protocol.stack,
        )

    @classmethod
    def check_name(cls, name: str) -> list[str]:
        return check_name(name)

    @property
    def game_continues(self) -> bool:
        return self._game_continues

    def reset(self, seed: int | None) -> Array:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
            self._emulator.reload_game()
        older = self._emulator.older
        if seed is not None or not self._game_continues:
            self._new_game()
            older = self._emulator.newer  # The first picture of a game is one frame, after no-ops too.
        self._game_continues = False
        self._lives = self._emulator.lives
        picture = np.empty((SIDE, SIDE), np.uint8)
        self._screen(older, self._emulator.newer, picture)
        self._stack.fill(picture)
        return self._stack.window

    def step(self, action: Array) -> Step:
        reward, over = self._emulator.play(self._apply_sticky(self._actions[int(action)]))
        self._time += 1
        self._draw(self._stack)
        lives = self._emulator.lives
        lost = self._protocol.life_ends and lives < self._lives and not over
        self._lives = lives
        truncated = not over and self._time >= self._max_steps
        self._game_continues = lost and not truncated
        return Step(self._stack.window, reward, over or self._game_continues, truncated)

    def snapshot(self) -> State:
        return {
            "emulator": self._emulator.snapshot(),
            "stack": self._stack.window.copy(),
            "rng": self._rng.bit_generator.state,
            "last_action": self._last_action,
            "time": self._time,
            "lives": self._lives,
            "goes_on": self._game_continues,
        }

    def restore(self, state: State) -> None:
        self._emulator.restore(state["emulator"])
        self._stack.set(np.asarray(state["stack"], np.uint8))
        self._rng.bit_generator.state = state["rng"]
        self._last_action, self._time = state["last_action"], state["time"]
        self._lives, self._game_continues = state["lives"], state["goes_on"]

    def render(self) -> Array:
        return self._emulator.screen_rgb()

    def _apply_sticky(self, action: int) -> list[int]:
        """The action of each frame of one step, sticky actions drawn."""
        sticky, skip = self._protocol.sticky, self._protocol.skip
        if not sticky:
            return [action] * skip
        actions, last = [], self._last_action
        for draw in self._rng.random(skip).tolist():
            if draw >= sticky:
                last = action
            actions.append(last)
        self._last_action = last
        return actions

    def _new_game(self) -> None:
        self._emulator.new_game()
        self._last_action, self._time = NOOP, 0
        if self._protocol.noop_max:
            for _ in range(int(self._rng.integers(1, self._protocol.noop_max + 1))):
                # A game cannot end within half a second of doing nothing; if one did, it would begin again.
                if self._emulator.play([NOOP])[1]:
                    self._emulator.new_game()
