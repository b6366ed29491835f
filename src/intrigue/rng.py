"""Randomness as named streams from one seed; nothing in the package draws from a global generator.

    seed ──SHA-256(seed, name)──► one generator per name: init, act, update, reward, eval, …

A stream never depends on how much another one was used, so adding a draw in one place moves nothing elsewhere.

Code that may run for several seeds at once draws through `uniform` and `normal`, which also accept `Draws`: a source
that gives every seed the numbers of its own generator (`intrigue.training.stacked.random`).
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

import torch
from torch import Generator, Tensor

from intrigue.seeding import derive_seed
from intrigue.state import State

STREAM_NAMES = ("act", "update", "reward", "noise", "skill", "eval")


class Streams:
    """One generator per named purpose, on one device, all from one seed."""

    def __init__(self, seed: int, device: torch.device | str = "cpu") -> None:
        self.seed = seed
        self._generators = {}
        for name in STREAM_NAMES:
            generator = torch.Generator(device=device)
            generator.manual_seed(derive_seed(seed, name))
            self._generators[name] = generator

    def __getitem__(self, name: str) -> torch.Generator:
        return self._generators[name]

    def state_dict(self) -> State:
        """The state of every stream."""
        return {name: generator.get_state() for name, generator in self._generators.items()}

    def load_state_dict(self, state: State) -> None:
        """Restore the state of every stream."""
        for name, generator in self._generators.items():
            generator.set_state(state[name].cpu())


class Draws(abc.ABC):
    """A source of random numbers that stands for several generators."""

    @abc.abstractmethod
    def uniform(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Numbers in [0, 1)."""

    @abc.abstractmethod
    def normal(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Standard normal numbers."""


Rng: TypeAlias = Generator | Draws


def uniform(shape: Sequence[int], rng: Rng, dtype: torch.dtype = torch.float32) -> Tensor:
    """Numbers in [0, 1), on the generator's device."""
    if isinstance(rng, Draws):
        return rng.uniform(shape, dtype)
    return torch.rand(tuple(shape), generator=rng, device=rng.device, dtype=dtype)


def normal(shape: Sequence[int], rng: Rng, dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard normal numbers, on the generator's device."""
    if isinstance(rng, Draws):
        return rng.normal(shape, dtype)
    return torch.randn(tuple(shape), generator=rng, device=rng.device, dtype=dtype)


Kind: TypeAlias = Literal["uniform", "normal"]


def draw_rows(kind: Kind, shape: Sequence[int], rngs: Sequence[Generator], dtype: torch.dtype) -> Tensor:
    """One draw from each of these generators, (S, *shape)."""
    if not rngs:
        raise ValueError("no generators. Pass one for each seed.")
    rows = [(uniform if kind == "uniform" else normal)(shape, each, dtype) for each in rngs]
    return torch.stack(rows) if len(rows) > 1 else rows[0].unsqueeze(0)


@contextlib.contextmanager
def seeded_construction(seed: int, name: str) -> Iterator[None]:
    """A scope in which torch's global generator is seeded, for constructors that use no other; restored afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, name))
        yield
