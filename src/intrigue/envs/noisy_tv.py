"""The maze of `rooms` with a screen of noise that a fifth action switches: a distractor for curiosity.

    observation = what `rooms` shows ++ screen,  screen in {0, 1}^bits

The screen is dark at the start of an episode, is redrawn by every fifth action (which costs a step and does not move
the agent), and stays as it is otherwise. What it shows next cannot be learned, so a bonus that pays for unpredictable
observations keeps the agent there (Burda et al. 2018, arXiv:1808.04355, section 5). By how much: the share of steps
spent on that action, logged as `charts/bait_share`. In pixels the screen is a band along the bottom of the image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from intrigue.envs.base import Env, EnvInfo, Step
from intrigue.envs.maze import PIXELS, STAY, MazeEpisode, PixelView, VectorView, draw_maze, get_maze
from intrigue.envs.registry import register_env
from intrigue.errors import ConfigError
from intrigue.fields import NonNegativeInt, PositiveInt
from intrigue.spaces import Array
from intrigue.state import State

SWITCH = STAY  # The fifth action: the agent stays where it is.
BAND_PIXELS = 8  # Height of the screen: one cell of the Nature trunk's first convolution.


@dataclass(frozen=True)
class NoisyTvConfig:
    """Settings of `noisy-tv`; the maze is that of `rooms`."""

    rooms: PositiveInt = 4  # as in `rooms`
    room_size: PositiveInt = 7  # as in `rooms`
    layout_seed: NonNegativeInt = 1  # as in `rooms`
    max_steps: PositiveInt = 400  # as in `rooms`
    view: Literal["vector", "pixels"] = "vector"  # as in `rooms`, with the screen appended
    screen_bits: PositiveInt = 16  # ours: 65,536 pictures, more than an agent can learn by heart


@register_env("noisy-tv", config=NoisyTvConfig)
@final
class NoisyTv(Env):
    """`rooms` with a screen of random bits."""

    def __init__(self, cfg: NoisyTvConfig, name: str = "") -> None:
        self._maze = get_maze(cfg)
        self._episode = MazeEpisode(self._maze, cfg.max_steps)
        self._screen: VectorScreen | PixelScreen
        if cfg.view == "vector":
            self._screen = VectorScreen(VectorView(self._maze), cfg.screen_bits)
        else:
            self._screen = PixelScreen(PixelView(self._maze, band=BAND_PIXELS), cfg.screen_bits)
        self._bits = np.zeros(cfg.screen_bits, dtype=np.uint8)
        self._rng = np.random.default_rng(0)
        self.info = EnvInfo(
            self._screen.space, gym.spaces.Discrete(SWITCH + 1), places=self._maze.places, distractor_action=SWITCH
        )

    def reset(self, seed: int | None) -> Array:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._episode.reset()
        self._bits = np.zeros_like(self._bits)
        return self._screen(self._episode.place, self._bits)

    def step(self, action: Array) -> Step:
        reward, terminated, truncated = self._episode.move(int(action))
        if action == SWITCH:
            self._bits = self._rng.integers(0, 2, size=len(self._bits), dtype=np.uint8)
        place = self._episode.place
        return Step(self._screen(place, self._bits), reward, terminated, truncated, place)

    def shorten_first_episode(self, fraction: float) -> None:
        self._episode.shorten_first_episode(fraction)

    def snapshot(self) -> State:
        return {"walk": self._episode.snapshot(), "bits": self._bits.copy(), "rng": self._rng.bit_generator.state}

    def restore(self, state: State) -> None:
        self._episode.restore(state["walk"])
        self._bits = np.array(state["bits"], dtype=np.uint8)
        self._rng.bit_generator.state = state["rng"]

    def render(self) -> Array:
        image = draw_maze(self._maze, self._episode.place)
        height, width = len(image) // 10, image.shape[1]  # A strip below the maze, a tenth as high.
        lit = self._bits[np.arange(width) * len(self._bits) // width]
        strip = np.broadcast_to((lit * 255)[None, :, None], (height, width, 3))
        return np.concatenate([image, strip]).astype(np.uint8)


@final
class VectorScreen:
    """The vector view with the bits appended."""

    def __init__(self, view: VectorView, bits: int) -> None:
        self._view = view
        self._width = view.space.shape[0]
        self.space = gym.spaces.Box(0.0, 1.0, (self._width + bits,), np.float32)

    def __call__(self, place: int, bits: NDArray[np.uint8]) -> Array:
        """The observation of a place with this screen, a new array."""
        obs = np.empty(self.space.shape, dtype=np.float32)
        obs[: self._width] = self._view(place)
        obs[self._width :] = bits
        return obs


@final
class PixelScreen:
    """The pixel view with the bits as white blocks in its bottom band."""

    def __init__(self, view: PixelView, bits: int) -> None:
        if bits > PIXELS:
            raise ConfigError(
                f"screen_bits: {bits} bits do not fit side by side into {PIXELS} pixels. "
                f'Accepted: up to {PIXELS}. Use fewer, or view="vector".'
            )
        self._view = view
        self.space = view.space
        self._source = np.arange(PIXELS) * bits // PIXELS  # Which bit each column shows.

    def __call__(self, place: int, bits: NDArray[np.uint8]) -> Array:
        """The observation of a place with this screen, a new array."""
        obs = self._view(place)
        obs[0, -BAND_PIXELS:] = bits[self._source] * 255
        return obs
