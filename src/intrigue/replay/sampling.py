"""Which transitions are drawn: uniformly, by episodes, or by priority. Each draw is a (step, environment).

All numbers come from one generator, in float64, so that a draw is the same wherever the replay is kept.

A binary tree of sums: drawing in proportion to weights that change, in log₂ steps.

Leaf i lies at place `leaves + i`, node j is the sum of 2j and 2j + 1, node 1 the sum of all (Schaul et al. 2016,
arXiv:1511.05952, appendix B.2.1). In float64: sums of a million leaves lose nothing that matters.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from intrigue.replay.step_store import StepStore
from intrigue.spaces import Array
from intrigue.state import State


class SumTree:
    """Weights by number, and their sums."""

    def __init__(self, count: int, device: torch.device) -> None:
        self.depth = max(1, (count - 1).bit_length())
        self.leaves = 1 << self.depth
        self.nodes = torch.zeros(2 * self.leaves, dtype=torch.float64, device=device)

    @property
    def total(self) -> Tensor:
        """The sum of all weights, ()."""
        return self.nodes[1]

    def get(self, index: Tensor) -> Tensor:
        """The weights of these leaves."""
        return self.nodes[self.leaves + index]

    def put(self, index: Tensor, weight: Tensor) -> None:
        """Set the weights (M,) of leaves (M,); of a leaf that stands twice, the larger counts."""
        node = self.leaves + index.flatten()
        self.nodes.scatter_reduce_(0, node, weight.double().flatten(), "amax", include_self=False)
        for _ in range(self.depth):
            node = node // 2
            # Each sum is made anew from its children, so that roundings do not add up over a run.
            self.nodes[node] = self.nodes[2 * node] + self.nodes[2 * node + 1]

    def find(self, mass: Tensor) -> Tensor:
        """The leaves at which the running sum of weights exceeds each mass (M,) in [0, total)."""
        node = torch.ones_like(mass, dtype=torch.int64)
        for _ in range(self.depth):
            node = 2 * node
            left = self.nodes[node]
            # A right half without weight is never entered, even if rounding brought the mass up to the whole.
            right = (mass >= left) & (self.nodes[node + 1] > 0)
            mass = torch.where(right, mass - left, mass)
            node = node + right.long()
        return node - self.leaves


PRIORITY_FLOOR = 1e-6  # ε of Schaul et al. 2016, section 3.3: nothing is never drawn again


class WindowStarts(NamedTuple):
    """Where windows begin, each (B,)."""

    step: Tensor
    env: Tensor
    chance: Tensor | None = None
    """How likely each was to be drawn, where that differs."""


def uniform(count: int, rng: Generator, device: torch.device) -> Tensor:
    """(count,) numbers in [0, 1)."""
    return torch.rand(count, generator=rng, device=rng.device, dtype=torch.float64).to(device)


def below(limit: Tensor | int, chance: Tensor) -> Tensor:
    """Whole numbers below `limit`, from numbers in [0, 1)."""
    # No float64 below 1 is above 1 - 2^-53, with which the product never rounds up to the limit itself.
    return (chance * limit).long()


def draw_transitions(store: StepStore, count: int, high: int, rng: Generator) -> WindowStarts:
    """Every transition of steps `store.first_sampleable_step` to `high` equally likely."""
    picked = below((high - store.first_sampleable_step) * store.num_envs, uniform(count, rng, store.ring.device))
    return WindowStarts(store.first_sampleable_step + picked // store.num_envs, picked % store.num_envs)


class EpisodeTable(NamedTuple):
    """Which episodes windows are drawn from, where the rows are; nothing of it is read back while drawing."""

    ends: Tensor
    """(room, 3): first step, last step and environment of episode number e in row e mod room."""
    bounds: Tensor
    """(3,): number of the first episode that counts, how many count, the first step that is remembered."""


def draw_windows(table: EpisodeTable, chance: Tensor, steps: int) -> WindowStarts:
    """Where windows of `steps` begin, for numbers (2, B) in [0, 1): which episode, and where in it."""
    oldest, count, low = table.bounds.unbind()
    chosen = (oldest + below(count, chance[0])) % len(table.ends)
    first, last, env = table.ends[chosen].unbind(-1)
    first = torch.maximum(first, low)
    room = (last - first + 2 - steps).clamp_min(1)  # beginnings after which all steps are of the episode
    return WindowStarts(first + below(room, chance[1]), env)


class Episodes:
    """Finished episodes, each equally likely, and every window of n steps within it (URLB).

    Differs from URLB: an episode whose beginning was forgotten is drawn from as far as it is remembered.
    """

    def __init__(self, store: StepStore) -> None:
        self._begun = [0] * store.num_envs
        self._finished: deque[tuple[int, int, int]] = deque()  # first step, last step, environment
        self._number = 0  # of the first of them
        self._low = 0
        self._written = 0  # episodes that are in the table
        device = store.ring.device
        # An episode takes two rows or more, so there can never be more of them than this.
        room = store.ring.size // 2 + store.num_envs
        self.table = EpisodeTable(
            torch.zeros(room, 3, dtype=torch.int64, device=device), torch.zeros(3, dtype=torch.int64, device=device)
        )

    def __len__(self) -> int:
        return len(self._finished)

    def record(self, step: int, over: Array, valid: Array) -> None:
        """Which environments' episodes are over (T, N) after the steps from this one on; invalid rows begin them anew.

        `publish` lets draws know of it.
        """
        for t, env in np.argwhere(over | ~valid).tolist():
            if over[t, env]:
                self._finished.append((self._begun[env], step + t, env))
            self._begun[env] = step + t + 1

    def publish(self, low: int) -> None:
        """Draw from all that was noted; steps before `low` are not remembered any more."""
        while self._finished and self._finished[0][1] < low:
            self._finished.popleft()
            self._number += 1
        ends, bounds = self.table
        total = self._number + len(self._finished)
        fresh = list(self._finished)[max(self._written, self._number) - self._number :] if total > self._written else []
        if fresh:
            rows = torch.arange(total - len(fresh), total, device=ends.device) % len(ends)
            ends.index_copy_(0, rows, torch.tensor(fresh, device=ends.device))
        if fresh or low != self._low:
            bounds.copy_(torch.tensor([self._number, len(self._finished), low]))
        self._written, self._low = total, low

    def rebuild(self, store: StepStore) -> None:
        """Find the episodes again among the rows that are kept; `publish` lets draws know of them."""
        self._begun = [store.first] * store.num_envs
        self._finished.clear()
        self._number = self._written = 0
        self._low = -1
        over, valid = store.episode_ends(store.first, store.steps)
        self.record(store.first, over, valid)

    def finished(self) -> list[tuple[int, int, int]]:
        """First step, last step and environment of each, in the order in which they ended."""
        return list(self._finished)

    def draw(self, count: int, steps: int, rng: Generator) -> WindowStarts:
        """Where windows of `steps` begin."""
        chance = torch.rand(2, count, generator=rng, device=rng.device, dtype=torch.float64)
        return draw_windows(self.table, chance.to(self.table.ends.device), steps)


class Priorities:
    """In proportion to priority: the size of the error at the last visit to the power α (Schaul et al. 2016, eq. 1)."""

    def __init__(self, store: StepStore, exponent: float) -> None:
        self.store, self.exponent = store, exponent
        self.tree = SumTree(store.slot_count, store.ring.device)
        self.largest = 1.0
        self._low = self._high = 0

    def set_range(self, low: int, high: int) -> None:
        """Steps `low` to `high` can be drawn from now on; what is new has the largest priority there has been."""
        self._set(range(self._low, min(low, self._high)), 0.0)
        self._set(range(max(self._high, low), high), self.largest)
        self._low, self._high = low, max(high, low)

    def draw(self, count: int, rng: Generator) -> WindowStarts:
        """Beginnings, one from each of `count` equal shares of the mass (section 3.3)."""
        share = torch.arange(count, device=self.tree.nodes.device) + uniform(count, rng, self.tree.nodes.device)
        slot = self.tree.find(share * (self.tree.total / count))
        chance = self.tree.get(slot) / self.tree.total
        offset = slot // self.store.num_envs
        span = self.store.slot_count // self.store.num_envs
        step = self._low + (offset - self._low) % span
        return WindowStarts(step, slot % self.store.num_envs, chance)

    def update(self, drawn: WindowStarts, error: Tensor) -> None:
        """The errors (B,) found at this visit."""
        weight = (error.detach().double().abs().to(drawn.step.device) + PRIORITY_FLOOR) ** self.exponent
        self.largest = max(self.largest, float(weight.max()))
        self.tree.put(self.store.slot_index(drawn.step, drawn.env), weight)

    def state_dict(self) -> State:
        """The priorities of what can be drawn, (steps, N), and the largest there has been."""
        steps = torch.arange(self._low, self._high, device=self.tree.nodes.device).unsqueeze(-1)
        slots = self.store.slot_index(steps, torch.arange(self.store.num_envs, device=steps.device))
        return {"low": self._low, "high": self._high, "largest": self.largest, "weight": self.tree.get(slots)}

    def load_state_dict(self, state: State) -> None:
        """Put back what `state_dict` gave."""
        self._low, self._high, self.largest = int(state["low"]), int(state["high"]), float(state["largest"])
        self._set(range(self._low, self._high), torch.as_tensor(state["weight"]))

    def _set(self, steps: range, weight: float | Tensor) -> None:
        if len(steps):
            device = self.tree.nodes.device
            numbers = torch.tensor(steps, device=device).unsqueeze(-1)
            slots = self.store.slot_index(numbers, torch.arange(self.store.num_envs, device=device))
            self.tree.put(slots, torch.as_tensor(weight, dtype=torch.float64, device=device).expand(slots.shape))


def importance_weights(chance: Tensor, count: int, exponent: float) -> Tensor:
    """(1 / (count · chance))^β, the largest of the batch being 1 (Schaul et al. 2016, section 3.4). (B,) float32"""
    weight = (1 / (count * chance)) ** exponent
    return (weight / weight.max()).float()
