"""Pseudo-counts of a state within its episode, by a kernel over its nearest neighbours (NGU, arXiv:2002.06038).

    n(z) ≈ Σ_i K(z, z_i),    K = ε / ( max(u_i − ξ, 0) + ε ),    z_i: the k nearest states of the episode so far

    scale="running"    u_i = ‖z − z_i‖² / d²_m,   d²_m the running mean of those squared distances      (NGU)
    scale="own"        u_i = ‖z − z_i‖ / d_m,     d_m the mean of the row's own k distances             (RLeXplore)

A neighbour at less than ξ of the mean distance counts as the same state and adds 1; one at it adds about ε.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from intrigue.nn.episode_segments import EpisodeSegments
from intrigue.nn.episodic_memory import EpisodicMemory, PerEnvironment


class Near(NamedTuple):
    """Each row's state against the episode so far, each (T, N)."""

    visits: Tensor  # n, between 0 and k
    distance: Tensor  # mean distance to the neighbours (squared with scale="running"); 0 where not enough
    enough: Tensor  # bool: there were at least as many neighbours as required


class KernelSettings(Protocol):
    """The settings of a reward that its kernel counts read."""

    @property
    def feature_dim(self) -> int:
        """Size of an encoding."""

    @property
    def capacity(self) -> int:
        """States remembered of an episode."""

    @property
    def k(self) -> int:
        """Nearest neighbours."""

    @property
    def epsilon(self) -> float:
        """Constant of the kernel."""

    @property
    def cluster_distance(self) -> float:
        """Fraction of the mean distance below which states count as equal."""


class KernelCounts(nn.Module):
    """Kernel counts over episodic memories. `least`: neighbours a row needs to enter the mean distance."""

    def __init__(self, cfg: KernelSettings, *, least: int, scale: Literal["running", "own"] = "running") -> None:
        super().__init__()
        self.k, self.epsilon, self.cluster_distance, self.least = cfg.k, cfg.epsilon, cfg.cluster_distance, least
        self.memory = EpisodicMemory(cfg.capacity, (cfg.feature_dim,))
        self.usual = RunningMean() if scale == "running" else None

    def episode_lengths(self, envs: int) -> Tensor:
        """States of each current episode so far, (N,)."""
        return self.memory.episode_lengths(envs)

    def near(self, segments: EpisodeSegments, entries: Tensor) -> Near:
        """Counts for the rows of a rollout with encodings (L, N, D). Changes nothing."""
        distance = self.memory.nearest(segments, entries, self.k)  # (T, N, k)
        if self.usual is None:
            distance = distance.sqrt()
        found, enough = distance.isfinite(), self._enough(segments)
        mean = distance.where(found, 0).sum(-1) / found.sum(-1).clamp_min(1)
        mean = mean.where(enough, 0)
        usual = mean if self.usual is None else self.usual.running(mean, enough & segments.active[segments.row_places])
        ratio = _relative(distance, usual.unsqueeze(-1))
        kernel = self.epsilon / ((ratio - self.cluster_distance).clamp_min(0) + self.epsilon)
        return Near(kernel.sum(-1), mean, enough)

    @torch.no_grad()
    def observe(self, segments: EpisodeSegments, entries: Tensor | None, distance: Tensor) -> None:
        """Store the ongoing states, and update the mean with the rows' mean distances (T, N), as scored."""
        if self.usual is not None:
            self.usual.observe(distance, self._enough(segments) & segments.active[segments.row_places])
        self.memory.add(segments, entries)

    def _enough(self, segments: EpisodeSegments) -> Tensor:  # (T, N)
        return segments.earlier[segments.row_places] >= self.least


class RunningMean(PerEnvironment):
    """The mean of all values so far, one per environment, as NGU's actors share nothing.

    A row gets the mean up to and including itself, so splitting a rollout in two changes nothing.
    """

    total: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("total", "count"):
            self.add_state(name, torch.zeros((), dtype=torch.float64))

    def running(self, values: Tensor, counted: Tensor) -> Tensor:
        """The mean at each row (T, N) of all counted values so far; 0 before the first."""
        total, count = self._sums(values, counted)
        return (total / count.clamp_min(1)).to(values.dtype)

    @torch.no_grad()
    def observe(self, values: Tensor, counted: Tensor) -> None:
        """Add the counted values (T, N)."""
        total, count = self._sums(values, counted)
        self.total, self.count = total[-1].clone(), count[-1].clone()

    def _sums(self, values: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
        envs = values.shape[1]
        total = self.state("total", envs) + values.double().where(counted, 0).cumsum(0)
        return total, self.state("count", envs) + counted.double().cumsum(0)


def _relative(distance: Tensor, usual: Tensor) -> Tensor:
    """Distances over their mean; 0 where that is zero, since all states so far are equal."""
    return (distance / usual.where(usual > 0, 1)).where((usual > 0) | distance.isinf(), 0)
