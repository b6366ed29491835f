"""Bonuses for rarely visited states by counting them: by hash or by kernel, in all of training or in the episode.

Variants:

    kernel     1 / (√n + c), n from a kernel over the k nearest states of the episode; 0 before there are k. The
               "pseudo-counts" of RLeXplore, which took them from NGU (Badia et al. 2020, arXiv:2002.06038)
    simhash    1 / √n(h(s')), n over all of training, all environments (Tang et al. 2017, arXiv:1611.04717, section 2)
    episodic   1 / √n(h(s')), n over the episode under way: the count-based episodic bonus of RIDE's and E3B's ablations

The hash and the kernel:

    h(s) = Σ_i 2^i · [ (A s)_i > 0 ]          A: `hash`, random and fixed, `bits` rows
    n(z) = Σ_i ε / ( max( ‖z − z_i‖ / d_m − ξ, 0 ) + ε ),    d_m = mean over the k nearest of ‖z − z_i‖

    z = φ(s'), φ: `features`, trained so that φ(s), φ(s') tell the action.  k, ε, ξ, c: `k`, `epsilon`,
    `cluster_distance`, `pseudo_count`.  Lifelong counts lie in `table`, at h mod `table_size`.

A visit counts itself: a new state earns 1 by hash. Codes are made of normalised observations, so they move while the
moments still do; `--curiosity.obs-moments warm-up` fixes them.

Differs from the paper: simhash, Tang et al. count a whole batch before they pay for it, here a row is paid by the count
up to its own time step; a learned code (their autoencoder) and hand-made features of pixels are not offered.
Differs from the official code: simhash, rllab's takes the least of six tables of prime sizes near 10⁶, here there is
one of them; kernel, RLeXplore compares every row with all rows of its storage, the row itself and later ones included,
and never clears it, here only earlier states of the same episode count.
Cost: by hash, one product with A per score and nothing to learn; kernel, as `episodic`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from intrigue.fields import NonNegativeFloat, PositiveFloat, PositiveInt
from intrigue.nn.encoders import StateFeatures
from intrigue.nn.episode_segments import EpisodeSegments
from intrigue.nn.episodic_memory import EpisodicMemory
from intrigue.nn.hashing import MAX_BITS, SimHash
from intrigue.nn.pseudocounts import KernelCounts
from intrigue.rewards.base import IntrinsicReward, Traits
from intrigue.rewards.registry import register_reward
from intrigue.rng import Rng
from intrigue.spaces import Spaces
from intrigue.types import Components, Transitions

CITATION = """@inproceedings{tang2017exploration,
  title     = {{\\#}Exploration: A Study of Count-Based Exploration for Deep Reinforcement Learning},
  author    = {Tang, Haoran and Houthooft, Rein and Foote, Davis and Stooke, Adam and Chen, Xi and Duan, Yan
               and Schulman, John and De Turck, Filip and Abbeel, Pieter},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2017},
  note      = {arXiv:1611.04717}
}"""


@dataclass(frozen=True)
class CountsConfig:
    """Settings of the count bonuses."""

    variant: Literal["kernel", "simhash", "episodic"] = "simhash"  # what is counted and where, see above
    bits: PositiveInt = 32  # by hash: signs in a code; Tang et al. use 16 to 512, more tell finer differences
    table_size: PositiveInt = 999_983  # simhash: counters; the largest prime of rllab's six
    feature_dim: PositiveInt = 32  # kernel: size of an encoding, as NGU and RLeXplore
    hidden: PositiveInt = 128  # kernel: hidden layer of the inverse model, as the NGU ports
    k: PositiveInt = 10  # kernel: nearest neighbours, as NGU
    capacity: PositiveInt = 30_000  # states remembered of an episode, as NGU
    epsilon: PositiveFloat = 1e-4  # kernel: constant, as RLeXplore
    cluster_distance: NonNegativeFloat = 0.008  # kernel: share of the usual distance below which states are one, as NGU
    pseudo_count: PositiveFloat = 1e-3  # kernel: c, as NGU


@register_reward("counts", config=CountsConfig)
@final
class Counts(IntrinsicReward):
    """One over the root of how often a state, or one like it, was reached."""

    needs_order = True
    table: Tensor  # (table_size,)  visits in all of training

    def __init__(self, cfg: CountsConfig, spaces: Spaces) -> None:
        super().__init__(cfg, spaces)
        self.cfg = cfg
        by_hash = cfg.variant != "kernel"
        if cfg.variant == "simhash":
            self.traits = Traits(inputs=frozenset({"next_obs"}))
        self.hash = SimHash(spaces.obs.size, cfg.bits) if by_hash else None
        self.features = None if by_hash else StateFeatures("idf", "raw", spaces, cfg.feature_dim, cfg.hidden)
        self.kernel = None if by_hash else KernelCounts(cfg, least=cfg.k, scale="own")
        self.keys = EpisodicMemory(cfg.capacity, (), torch.int64) if cfg.variant == "episodic" else None
        size = cfg.table_size if cfg.variant == "simhash" else 0
        self.register_buffer("table", torch.zeros(size, dtype=torch.int32))

    @classmethod
    def refusal(cls, cfg: CountsConfig, spaces: Spaces) -> str | None:
        """Codes that do not fit a number, and a memory that cannot hold k states."""
        if cfg.variant == "kernel" and cfg.capacity < cfg.k:
            return f"a memory of {cfg.capacity} states never holds the k = {cfg.k} it needs. Raise capacity or lower k."
        if cfg.variant != "kernel" and cfg.bits > MAX_BITS:
            return f"codes of {cfg.bits} bits do not fit a 64-bit number. Use at most {MAX_BITS}."
        return None

    def score(self, batch: Transitions) -> Tensor:
        """The bonus of each state reached, (T, N)."""
        return self.score_parts(batch)[0]

    def score_parts(self, batch: Transitions) -> tuple[Tensor, Components]:
        """The bonus and the visits it was made of, the present one included; by kernel also the usual distance."""
        if self.kernel is not None:
            segments = self._segments(batch)
            near = self.kernel.near(segments, segments.encode(self._encode, batch.next_obs, batch.obs))
            bonus = 1 / (near.visits.sqrt() + self.cfg.pseudo_count)
            return bonus.where(near.enough, 0), {"visits": 1 + near.visits, "distance": near.distance}
        visits = self._lifelong(batch) if self.keys is None else self._in_episode(batch, self.keys)
        visits = visits.to(batch.next_obs.dtype)
        return visits.rsqrt(), {"visits": visits}

    def loss(self, batch: Transitions, rng: Rng) -> Tensor:
        """By kernel, how badly the action is told from the two encodings; a hash learns nothing."""
        return super().loss(batch, rng) if self.features is None else self.features.encoder_loss(batch, self.noise)

    @torch.no_grad()
    def observe(self, batch: Transitions, parts: Components) -> None:
        """Count the batch."""
        if self.cfg.variant == "simhash":
            reached = self._bucket(batch)[batch.valid]
            self.table.index_add_(0, reached, torch.ones_like(reached, dtype=self.table.dtype))
            return
        segments = self._segments(batch)
        if self.kernel is not None:
            entries = segments.encode_ongoing(self._encode, batch.next_obs, batch.obs)
            self.kernel.observe(segments, entries, parts["distance"])
        elif self.keys is not None:
            self.keys.add(segments, segments.arrange(self._codes(batch.next_obs), self._codes(batch.obs)))

    def _lifelong(self, batch: Transitions) -> Tensor:
        """Visits to each row's bucket in the table, and in this rollout up to the row's time step. (T, N)"""
        bucket = self._bucket(batch)
        steps = len(bucket)
        time = torch.arange(steps, device=bucket.device).unsqueeze(-1)
        # One number per visit, ordered by bucket and then by time: visits to a bucket until now are a range of them.
        visits = (bucket * steps + time)[batch.valid].sort().values
        until = torch.searchsorted(visits, bucket * steps + time, right=True)
        since = torch.searchsorted(visits, bucket * steps)
        # A row that is no visit may have a bucket without any.
        return (self.table[bucket] + until - since).clamp_min(1)

    def _in_episode(self, batch: Transitions, keys: EpisodicMemory) -> Tensor:
        """Visits to each row's code in its episode, the state it began with included. (T, N)"""
        segments = self._segments(batch)
        return 1 + keys.count_equal(segments, segments.arrange(self._codes(batch.next_obs), self._codes(batch.obs)))

    def _bucket(self, batch: Transitions) -> Tensor:  # (T, N)
        return self._codes(batch.next_obs) % self.cfg.table_size

    def _codes(self, states: Tensor) -> Tensor:  # (T, N)
        assert self.hash is not None
        return self.hash.codes(self.noise(self.hash(states)))

    def _encode(self, states: Tensor) -> Tensor:
        assert self.features is not None
        encoded: Tensor = self.noise(self.features(states))
        return encoded

    def _segments(self, batch: Transitions) -> EpisodeSegments:
        memory = self.keys or self.kernel
        assert memory is not None
        return EpisodeSegments.from_batch(batch, memory.episode_lengths(batch.valid.shape[1]), include_start=True)
