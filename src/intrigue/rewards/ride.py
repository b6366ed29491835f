"""Rewarding impact-driven exploration (Raileanu and Rocktäschel 2020, arXiv:2002.12292, section 3).

    r(s, s') = ‖φ(s') − φ(s)‖₂ / √N_ep(s')

    L_φ = w_f · L_forward( f(φ(s), a), φ(s') ) + w_i · L_inverse( g(φ(s), φ(s')), a )

    N_ep(s'): how often the episode has been in s', this visit included.  φ: `features`, trained by both losses.
    f: `forward_model`.  g: inside `features`.  w_f, w_i: `forward_coef`, `inverse_coef`.

How visits are counted (`count`):

    equality   states equal to the bit, as the environment gave them: running normalisation does not matter
    kernel     N = 1 + Σ_i K(φ(s'), φ(s_i)) over the k nearest states of the episode (see intrigue.nn.pseudocounts)

Variants:

    paper      L_forward = ½ ‖·‖²; the state an episode begins with is a visit too; count: equality for vectors, kernel
               for pixels, standing in for the paper's pseudo-counts
    official   L_forward = ‖·‖; only states reached are visits; count: equality

Differs from the paper: the form of L_forward could not be verified, it is ICM's; for large state spaces the paper
points to density models, for which the kernel stands in. φ is our encoder, where the paper has small convolutions.
Differs from the official code (facebookresearch/impact-driven-exploration): there the last frame of an unroll is
counted twice, and the last row of an episode sees the frame after the reset; both are left out. Its losses are summed
over time, ours averaged, with the same weights between them.
Cost: two encoder passes per score (nearly one for images on a CPU), two with gradient per learning epoch; memory one
number per state of an episode (equality) or D (kernel, with one more encoder pass over the states to be remembered).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor, nn

from intrigue.fields import NonNegativeFloat, PositiveFloat, PositiveInt
from intrigue.nn.encoders import StateFeatures
from intrigue.nn.episode_segments import EpisodeSegments
from intrigue.nn.episodic_memory import EpisodicMemory
from intrigue.nn.hashing import exact_keys
from intrigue.nn.networks import mlp
from intrigue.nn.pseudocounts import KernelCounts
from intrigue.ops.row_norm import row_norm
from intrigue.rewards.base import IntrinsicReward
from intrigue.rewards.registry import register_reward
from intrigue.rng import Rng
from intrigue.spaces import Spaces
from intrigue.types import Components, Prepared, Transitions

CITATION = """@inproceedings{raileanu2020ride,
  title     = {{RIDE}: Rewarding Impact-Driven Exploration for Procedurally-Generated Environments},
  author    = {Raileanu, Roberta and Rockt{\\"a}schel, Tim},
  booktitle = {International Conference on Learning Representations},
  year      = {2020},
  note      = {arXiv:2002.12292}
}"""


@dataclass(frozen=True)
class RIDEConfig:
    """Settings of impact-driven exploration."""

    variant: Literal["paper", "official"] = "official"  # forward loss and what counts as a visit, see above
    count: Literal["auto", "equality", "kernel"] = "auto"  # how visits are counted; auto: what the variant says
    feature_dim: PositiveInt = 128  # official code: MiniGrid's embedding
    hidden: PositiveInt = 256  # official code: forward and inverse models
    forward_coef: NonNegativeFloat = 10.0  # official code: forward_loss_coef
    inverse_coef: NonNegativeFloat = 0.1  # official code: inverse_loss_coef
    capacity: PositiveInt = 30_000  # ours, as NGU: states of an episode among which visits are counted
    k: PositiveInt = 10  # kernel: nearest neighbours, as NGU; N is at most k + 1
    epsilon: PositiveFloat = 1e-4  # kernel: constant, as the NGU ports
    cluster_distance: NonNegativeFloat = 0.008  # kernel: as NGU


@register_reward("ride", config=RIDEConfig)
@final
class RIDE(IntrinsicReward):
    """How much a step changed the encoding, over the root of the visits to where it led."""

    needs_order = True

    def __init__(self, cfg: RIDEConfig, spaces: Spaces) -> None:
        super().__init__(cfg, spaces)
        self.cfg = cfg
        self.paper = cfg.variant == "paper"
        self.features = StateFeatures("idf", "raw", spaces, cfg.feature_dim, cfg.hidden)
        width = cfg.feature_dim
        self.forward_model = mlp((width + spaces.action.width, cfg.hidden, width), nn.ReLU)
        by_kernel = cfg.count == "kernel" or (cfg.count == "auto" and self.paper and spaces.obs.kind == "pixels")
        self.kernel = KernelCounts(cfg, least=1) if by_kernel else None
        self.keys = None if by_kernel else EpisodicMemory(cfg.capacity, (), torch.int64)

    def score(self, batch: Transitions) -> Tensor:
        """Impact over the root of visits, (T, N)."""
        return self.score_parts(batch)[0]

    def score_parts(self, batch: Transitions) -> tuple[Tensor, Components]:
        """The bonus, the impact and the visits it was made of, and the distance behind visits by kernel."""
        phi, next_phi = map(self.noise, self.features.encode_pair(batch))
        impact = row_norm(next_phi - phi)
        segments = self._segments(batch)
        parts = {"impact": impact}
        if self.keys is not None:
            visits = 1 + self.keys.count_equal(segments, segments.arrange(*_keys(batch))).to(impact.dtype)
        else:
            assert self.kernel is not None
            near = self.kernel.near(segments, segments.arrange(next_phi, phi))
            visits, parts["distance"] = 1 + near.visits, near.distance
        parts["visits"] = visits
        return impact / visits.sqrt(), parts

    def loss(self, batch: Transitions, rng: Rng) -> Tensor:
        """The weighted forward and inverse losses; both shape the encoding."""
        phi, next_phi = map(self.noise, self.features.encode_pair(batch))
        missed = self.forward_model(torch.cat([phi, batch.action], -1)) - next_phi
        forward = missed.square().sum(-1) / 2 if self.paper else row_norm(missed)
        inverse = self.features.inverse_loss(phi, next_phi, batch.action)
        loss: Tensor = self.cfg.forward_coef * forward.mean() + self.cfg.inverse_coef * inverse
        return loss

    @torch.no_grad()
    def observe(self, batch: Transitions, parts: Components) -> None:
        """Remember the episodes under way, forget those that ended."""
        segments = self._segments(batch)
        if self.keys is not None:
            self.keys.add(segments, segments.arrange(*_keys(batch)))
        else:
            assert self.kernel is not None
            entries = segments.encode_ongoing(self._encode, batch.next_obs, batch.obs)
            self.kernel.observe(segments, entries, parts["distance"])

    def _encode(self, states: Tensor) -> Tensor:
        encoded: Tensor = self.noise(self.features(states))
        return encoded

    def _segments(self, batch: Transitions) -> EpisodeSegments:
        memory = self.keys or self.kernel
        assert memory is not None
        return EpisodeSegments.from_batch(batch, memory.episode_lengths(batch.valid.shape[1]), include_start=self.paper)


def _keys(batch: Transitions) -> tuple[Tensor, Tensor]:
    """Keys (T, N) of the states reached and left, as the environment gave them where that is known."""
    if isinstance(batch, Prepared):
        return exact_keys(batch.raw_next_obs), exact_keys(batch.raw_obs)
    return exact_keys(batch.next_obs), exact_keys(batch.obs)
