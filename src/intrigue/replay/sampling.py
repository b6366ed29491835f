"""Which transitions are drawn: uniformly, by episodes, or by priority. Each draw is a (step, environment).

All random numbers come from one generator, in float64, so draws do not depend on the device that stores the replay.
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
    """A sum tree, which draws in proportion to changing weights in log₂ steps (arXiv:1511.05952, appendix B.2.1).

    Leaf i is node `leaves + i`, node j the sum of nodes 2j and 2j + 1, node 1 the sum of all. In float64, in which sums
    of a million leaves lose nothing that matters.
    """

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
        """Set the weights (M,) of leaves (M,); of a leaf given twice, to the larger."""
        node = self.leaves + index.flatten()
        self.nodes.scatter_reduce_(0, node, weight.double().flatten(), "amax", include_self=False)
        for _ in range(self.depth):
            node = node // 2
            # Recomputed from the children, so that rounding errors do not accumulate over a run.
            self.nodes[node] = self.nodes[2 * node] + self.nodes[2 * node + 1]

    def find(self, mass: Tensor) -> Tensor:
        """The leaves at which the running sum of weights exceeds each mass (M,) in [0, total)."""
        node = torch.ones_like(mass, dtype=torch.int64)
        for _ in range(self.depth):
            node = 2 * node
            left = self.nodes[node]
            # Never descend into a right half without weight, even if rounding brought the mass up to the total.
            right = (mass >= left) & (self.nodes[node + 1] > 0)
            mass = torch.where(right, mass - left, mass)
            node = node + right.long()
        return node - self.leaves


PRIORITY_FLOOR = 1e-6  # ε of Schaul et al. 2016, section 3.3: every transition can be drawn again


class WindowStarts(NamedTuple):
    """Where windows start, each (B,)."""

    step: Tensor
    env: Tensor
    probability: Tensor | None = None
    """With which each was drawn, where they differ."""


def uniform(count: int, rng: Generator, device: torch.device) -> Tensor:
    """(count,) numbers in [0, 1)."""
    return torch.rand(count, generator=rng, device=rng.device, dtype=torch.float64).to(device)


def scale_to_int(limit: Tensor | int, chance: Tensor) -> Tensor:
    """Integers below `limit`, from numbers in [0, 1)."""
    # No float64 below 1 is above 1 - 2^-53, with which the product never rounds up to the limit itself.
    return (chance * limit).long()


def draw_transitions(store: StepStore, count: int, end: int, rng: Generator) -> WindowStarts:
    """Transitions of steps `store.first_sampleable_step` to `end`, equally likely."""
    picked = scale_to_int((end - store.first_sampleable_step) * store.num_envs, uniform(count, rng, store.ring.device))
    return WindowStarts(store.first_sampleable_step + picked // store.num_envs, picked % store.num_envs)


class EpisodeTable(NamedTuple):
    """The episodes that windows are drawn from, on the storage device; drawing never synchronises with the host."""

    ends: Tensor
    """(capacity, 3): first step, last step and environment of episode number e in row e mod capacity."""
    bounds: Tensor
    """(3,): number of the oldest episode, count of episodes, first sampleable step."""


def draw_windows(table: EpisodeTable, chance: Tensor, steps: int) -> WindowStarts:
    """Starts of windows of `steps`, from numbers `chance` (2, B) in [0, 1): which episode, and where in it."""
    oldest, count, low = table.bounds.unbind()
    chosen = (oldest + scale_to_int(count, chance[0])) % len(table.ends)
    first, last, env = table.ends[chosen].unbind(-1)
    first = torch.maximum(first, low)
    room = (last - first + 2 - steps).clamp_min(1)  # starts whose whole window lies in the episode
    return WindowStarts(first + scale_to_int(room, chance[1]), env)


class Episodes:
    """Finished episodes, drawn with equal probability, and then a window of n steps in one (URLB).

    Differs from URLB: an episode whose first steps were overwritten is drawn from as far as it is stored.
    """

    def __init__(self, store: StepStore) -> None:
        self._first_step = [0] * store.num_envs
        self._finished: deque[tuple[int, int, int]] = deque()  # first step, last step, environment
        self._number = 0  # of the first of them
        self._low = 0
        self._written = 0  # episodes that were copied to the table
        device = store.ring.device
        # An episode takes at least two rows.
        room = store.ring.size // 2 + store.num_envs
        self.table = EpisodeTable(
            torch.zeros(room, 3, dtype=torch.int64, device=device), torch.zeros(3, dtype=torch.int64, device=device)
        )

    def __len__(self) -> int:
        return len(self._finished)

    def record(self, step: int, over: Array, valid: Array) -> None:
        """Record which steps (T, N), from `step` on, end an episode; an invalid one is followed by a new episode.

        Draws see it after `publish`.
        """
        for t, env in np.argwhere(over | ~valid).tolist():
            if over[t, env]:
                self._finished.append((self._first_step[env], step + t, env))
            self._first_step[env] = step + t + 1

    def publish(self, low: int) -> None:
        """Copy what was recorded to the table; steps before `low` can no longer be sampled."""
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
        """Find the episodes in the stored rows; draws see them after `publish`."""
        self._first_step = [store.first] * store.num_envs
        self._finished.clear()
        self._number = self._written = 0
        self._low = -1
        over, valid = store.episode_ends(store.first, store.steps)
        self.record(store.first, over, valid)

    def finished(self) -> list[tuple[int, int, int]]:
        """First step, last step and environment of each episode, in the order in which they ended."""
        return list(self._finished)

    def draw(self, count: int, steps: int, rng: Generator) -> WindowStarts:
        """Starts of windows of `steps`."""
        chance = torch.rand(2, count, generator=rng, device=rng.device, dtype=torch.float64)
        return draw_windows(self.table, chance.to(self.table.ends.device), steps)


class Priorities:
    """Draws in proportion to |error at the last visit|^α (Schaul et al. 2016, eq. 1)."""

    def __init__(self, store: StepStore, exponent: float) -> None:
        self.store, self.exponent = store, exponent
        self.tree = SumTree(store.slot_count, store.ring.device)
        self.largest = 1.0
        self._low = self._high = 0

    def set_range(self, low: int, high: int) -> None:
        """Make steps `low` to `high` those that can be drawn; new ones get the largest priority so far."""
        self._set(range(self._low, min(low, self._high)), 0.0)
        self._set(range(max(self._high, low), high), self.largest)
        self._low, self._high = low, max(high, low)

    def draw(self, count: int, rng: Generator) -> WindowStarts:
        """Starts, one from each of `count` equal shares of the mass (section 3.3)."""
        share = torch.arange(count, device=self.tree.nodes.device) + uniform(count, rng, self.tree.nodes.device)
        slot = self.tree.find(share * (self.tree.total / count))
        probability = self.tree.get(slot) / self.tree.total
        offset = slot // self.store.num_envs
        span = self.store.slot_count // self.store.num_envs
        step = self._low + (offset - self._low) % span
        return WindowStarts(step, slot % self.store.num_envs, probability)

    def update(self, starts: WindowStarts, error: Tensor) -> None:
        """Set priorities from the errors (B,) at this visit."""
        weight = (error.detach().double().abs().to(starts.step.device) + PRIORITY_FLOOR) ** self.exponent
        self.largest = max(self.largest, float(weight.max()))
        self.tree.put(self.store.slot_index(starts.step, starts.env), weight)

    def state_dict(self) -> State:
        """The priorities of what can be drawn, (steps, N), and the largest so far."""
        steps = torch.arange(self._low, self._high, device=self.tree.nodes.device).unsqueeze(-1)
        slots = self.store.slot_index(steps, torch.arange(self.store.num_envs, device=steps.device))
        return {"low": self._low, "high": self._high, "largest": self.largest, "weight": self.tree.get(slots)}

    def load_state_dict(self, state: State) -> None:
        """Restore the state."""
        self._low, self._high, self.largest = int(state["low"]), int(state["high"]), float(state["largest"])
        self._set(range(self._low, self._high), torch.as_tensor(state["weight"]))

    def _set(self, steps: range, weight: float | Tensor) -> None:
        if len(steps):
            device = self.tree.nodes.device
            numbers = torch.tensor(steps, device=device).unsqueeze(-1)
            slots = self.store.slot_index(numbers, torch.arange(self.store.num_envs, device=device))
            self.tree.put(slots, torch.as_tensor(weight, dtype=torch.float64, device=device).expand(slots.shape))


def importance_weights(probability: Tensor, count: int, exponent: float) -> Tensor:
    """(1 / (count · probability))^β over the largest of the batch (Schaul et al. 2016, section 3.4). (B,) float32"""
    weight = (1 / (count * probability)) ** exponent
    return (weight / weight.max()).float()
