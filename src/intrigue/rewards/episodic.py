"""NGU's episodic novelty on its own (Badia et al. 2020, arXiv:2002.06038, section 2 and Algorithm 1).

    r(s') = 1 / s  if s ≤ s_max else 0,      s = √( Σ_i K(z, z_i) ) + c,      z = φ(s')
    K(z, z_i) = ε / ( max( ‖z − z_i‖² / d²_m − ξ, 0 ) + ε )

    z_i: the k nearest of the states of this episode so far, in `counts.memory`, cleared when the episode ends; r = 0
    before there are k of them.  d²_m: `counts.usual`, running mean of ‖z − z_i‖² over those neighbours, this row
    included, one per environment.  φ: `features`, trained so that φ(s), φ(s') tell the action.
    k, ε, ξ, c, s_max: `k`, `epsilon`, `cluster_distance`, `pseudo_count`, `max_similarity`.

`ngu` multiplies this by a lifelong factor: `episodic * clip(rnd_alpha, 1, 5)` is the same bonus as an expression.

Differs from the paper: the embedding ends without an activation and is learned by the shared optimiser on every
rollout, not by a learner on replayed sequences; states are remembered as φ sees them after the rollout's learning, as
the next rollout will. The paper's ε is uncertain: a published summary of its main text gives 10⁻³, both
ports read here use 10⁻⁴, which is the default; which one was run could not be verified. Its text calls d²_m the mean
over k-th neighbours, its algorithm over the list of all k; we take the list. With k = 10 the similarity never passes
√10 + c, so s_max = 8 never acts; it is there for larger k.
Differs from the official code: there is none. Of the ports, Deep RL Zoo takes the minimum with 0 where the algorithm
has the maximum, and remembers 3,000 states by default; RLeXplore divides unsquared distances by the mean of the row's
own (see `counts`, variant kernel).
Cost: one encoder pass per score, two with gradient per learning epoch, one over the states still to be remembered per
rollout; a batched search over k + 4 neighbours; memory up to capacity × D numbers per environment, as episodes need it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from intrigue.fields import NonNegativeFloat, PositiveFloat, PositiveInt
from intrigue.nn.encoders import StateFeatures
from intrigue.nn.episode_segments import EpisodeSegments
from intrigue.nn.pseudocounts import KernelCounts
from intrigue.rewards.base import IntrinsicReward
from intrigue.rewards.registry import register_reward
from intrigue.rng import Rng
from intrigue.spaces import Spaces
from intrigue.types import Components, Transitions

CITATION = """@inproceedings{badia2020ngu,
  title     = {Never Give Up: Learning Directed Exploration Strategies},
  author    = {Puigdom{\\`e}nech Badia, Adri{\\`a} and Sprechmann, Pablo and Vitvitskyi, Alex and Guo, Daniel
               and Piot, Bilal and Kapturowski, Steven and Tieleman, Olivier and Arjovsky, Mart{\\'i}n
               and Pritzel, Alexander and Bolt, Andrew and Blundell, Charles},
  booktitle = {International Conference on Learning Representations},
  year      = {2020},
  note      = {arXiv:2002.06038}
}"""


@dataclass(frozen=True)
class EpisodicConfig:
    """Settings of NGU's episodic novelty."""

    feature_dim: PositiveInt = 32  # NGU: size of the controllable state
    hidden: PositiveInt = 128  # NGU ports: hidden layer of the inverse model
    k: PositiveInt = 10  # NGU: nearest neighbours
    capacity: PositiveInt = 30_000  # NGU: states remembered of an episode
    epsilon: PositiveFloat = 1e-4  # kernel constant of both ports read; a summary of NGU's text has 1e-3
    cluster_distance: NonNegativeFloat = 0.008  # NGU: squared distance, over the usual one, below which states are one
    pseudo_count: PositiveFloat = 1e-3  # NGU: c, which bounds the bonus of a state unlike all others
    max_similarity: PositiveFloat = 8.0  # NGU: above this the bonus is zero


@register_reward("episodic", config=EpisodicConfig)
@final
class Episodic(IntrinsicReward):
    """One over the root of how often the episode has been near the state reached."""

    needs_order = True

    def __init__(self, cfg: EpisodicConfig, spaces: Spaces) -> None:
        super().__init__(cfg, spaces)
        self.cfg = cfg
        self.features = StateFeatures("idf", "raw", spaces, cfg.feature_dim, cfg.hidden)
        self.counts = KernelCounts(cfg, least=cfg.k)

    @classmethod
    def refusal(cls, cfg: EpisodicConfig, spaces: Spaces) -> str | None:
        """A memory that cannot hold k states never pays."""
        if cfg.capacity < cfg.k:
            return f"a memory of {cfg.capacity} states never holds the k = {cfg.k} it needs. Raise capacity or lower k."
        return None

    def score(self, batch: Transitions) -> Tensor:
        """The bonus of each state reached, (T, N)."""
        return self.score_parts(batch)[0]

    def score_parts(self, batch: Transitions) -> tuple[Tensor, Components]:
        """The bonus, and the mean squared distance to the k neighbours it came from (0 where there were fewer)."""
        segments = self._segments(batch)
        near = self.counts.near(segments, segments.encode(self._encode, batch.next_obs, batch.obs))
        similarity = near.visits.sqrt() + self.cfg.pseudo_count
        paid = near.enough & (similarity <= self.cfg.max_similarity)
        return similarity.reciprocal().where(paid, 0), {"distance": near.distance}

    def loss(self, batch: Transitions, rng: Rng) -> Tensor:
        """How badly the action is told from the two embeddings."""
        return self.features.encoder_loss(batch, self.noise)

    @torch.no_grad()
    def observe(self, batch: Transitions, parts: Components) -> None:
        """Remember the episodes under way, forget those that ended, let the distances into their mean."""
        segments = self._segments(batch)
        self.counts.observe(
            segments, segments.encode_ongoing(self._encode, batch.next_obs, batch.obs), parts["distance"]
        )

    def _encode(self, states: Tensor) -> Tensor:
        encoded: Tensor = self.noise(self.features(states))
        return encoded

    def _segments(self, batch: Transitions) -> EpisodeSegments:
        return EpisodeSegments.from_batch(batch, self.counts.episode_lengths(batch.valid.shape[1]), include_start=True)
