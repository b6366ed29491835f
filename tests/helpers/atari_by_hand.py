"""The Atari pipeline once more, slowly and by definition: coloured screens, fractions for weights, no tables."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
from ale_py import ALEInterface, LoggerMode, roms

SIDE = 84
TEN_GAMES = (
    "Alien", "Amidar", "Assault", "Breakout", "Enduro", "MontezumaRevenge", "Pong", "Qbert", "Seaquest", "Solaris",
)  # fmt: skip


@cache
def axis_weights(size: int, kind: str) -> np.ndarray:
    """(84, size) in float64, rows summing to 1."""
    scale = Fraction(size, SIDE)
    rows = []
    for place in range(SIDE):
        first, last = place * scale, (place + 1) * scale
        middle = (first + last) / 2
        if kind == "bilinear":
            row = [max(Fraction(0), 1 - abs(i + Fraction(1, 2) - middle) / scale) for i in range(size)]
        else:
            row = [max(Fraction(0), min(last, Fraction(i + 1)) - max(first, Fraction(i))) for i in range(size)]
        total = sum(row)
        rows.append([float(each / total) for each in row])
    return np.array(rows)


def picture(frames: list[np.ndarray], kind: str) -> np.ndarray:
    """What the agent sees of up to two coloured frames (height, width, 3)."""
    red, green, blue = np.stack(frames[-2:]).max(axis=0).astype(np.int64).transpose(2, 0, 1)
    thousandths = 299 * red + 587 * green + 114 * blue
    grey = thousandths * 16 // 1000 / 16 if kind == "bilinear" else (thousandths + 500) // 1000
    # Not a matrix product: the library behind it would start threads, which are slow beside other tests.
    rows = np.einsum("or,rc->oc", axis_weights(grey.shape[0], kind), grey)
    shrunk = np.einsum("rc,oc->ro", rows, axis_weights(grey.shape[1], kind))
    # No exact result lies within 1e-6 below a whole number: weights are fractions with small denominators.
    return np.floor(shrunk + (0.5 if kind == "area" else 0.0) + 1e-7).astype(np.uint8)


class AtariByHand:
    """Sticky actions, skip, max, grey, resize and stack, straight from the protocol's text."""

    def __init__(self, rom_id: str, sticky: float, noop_max: int, kind: str) -> None:
        ALEInterface.setLoggerMode(LoggerMode.Error)
        self.ale = ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.loadROM(roms.get_rom_path(rom_id))
        self.actions = self.ale.getMinimalActionSet()
        self.sticky, self.noop_max, self.kind = sticky, noop_max, kind

    def reset(self, seed: int | None) -> np.ndarray:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.ale.reset_game()
        if self.noop_max:
            for _ in range(self.rng.integers(1, self.noop_max + 1)):
                self.ale.act(0)
        self.last, self.frames = self.ale.getLegalActionSet()[0], [self.ale.getScreenRGB()]
        self.stack = [picture(self.frames, self.kind)] * 4
        return np.stack(self.stack)

    def step(self, action: int) -> tuple[np.ndarray, float, bool]:
        score, draws = 0.0, self.rng.random(4) if self.sticky else np.ones(4)
        for draw in draws:
            if not draw < self.sticky:
                self.last = self.actions[action]
            score += self.ale.act(self.last)
            self.frames.append(self.ale.getScreenRGB())
            if self.ale.game_over():
                break
        del self.frames[:-2]
        self.stack = [*self.stack[1:], picture(self.frames, self.kind)]
        return np.stack(self.stack), score, self.ale.game_over()
