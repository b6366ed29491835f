"""Exploration via elliptical episodic bonuses (Henaff et al. 2022, arXiv:2210.05805, section 3).

    b(s_t) = φ(s_t)ᵀ C_{t−1}⁻¹ φ(s_t),        C_{t−1} = λ I + Σ_{i < t} φ(s_i) φ(s_i)ᵀ        within the episode

    φ: `features`, trained so that φ(s), φ(s') tell the action.  C⁻¹: `ellipse`, one per environment, begun anew with
    every episode.  λ: `ridge`.  With one-hot φ and small λ, b is one over the number of visits in the episode.

Variants:

    paper      a transition earns b of the state it reached, s'; the state an episode begins with is in C, unpaid
    official   a transition earns b of the state it left, s; the first step of an episode earns nothing

Both see the same states in the same order: the official bonus of a transition is the paper's of the one before it.

Differs from the paper: φ is our encoder with `feature_dim` outputs and no activation at its end; the paper's networks
are made for its environments. That it pays the state reached is our reading of its formula; its pseudo-code could not
be verified. Remembered states enter C as φ sees them after the rollout's learning.
Differs from the official code (facebookresearch/e3b, MiniHack): φ has 1,024 outputs there, trained by its own Adam at
the same rate as ours; C is kept in float32 and updated row by row, here in float64 and by blocks, with the same result
(see intrigue.nn.elliptical).
Cost: one encoder pass per score, two with gradient per learning epoch, one over the states still to be remembered per
rollout; N·D² float64 numbers of memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from intrigue.fields import PositiveFloat, PositiveInt
from intrigue.nn.elliptical import InverseCovariance
from intrigue.nn.encoders import StateFeatures
from intrigue.nn.episode_segments import EpisodeSegments
from intrigue.rewards.base import IntrinsicReward
from intrigue.rewards.registry import register_reward
from intrigue.rng import Rng
from intrigue.spaces import Spaces
from intrigue.types import Components, Transitions

CITATION = """@inproceedings{henaff2022e3b,
  title     = {Exploration via Elliptical Episodic Bonuses},
  author    = {Henaff, Mikael and Raileanu, Roberta and Jiang, Minqi and Rockt{\\"a}schel, Tim},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2022},
  note      = {arXiv:2210.05805}
}"""


@dataclass(frozen=True)
class E3BConfig:
    """Settings of the elliptical bonus."""

    variant: Literal["paper", "official"] = "official"  # which state of a transition is paid for, see above
    feature_dim: PositiveInt = 256  # ours: official 1024, RLeXplore 128; memory grows with its square
    hidden: PositiveInt = 256  # official code: hidden layer of the inverse model
    ridge: PositiveFloat = 0.1  # λ: paper and official code


@register_reward("e3b", config=E3BConfig)
@final
class E3B(IntrinsicReward):
    """How far a state's encoding lies outside the ellipse of those its episode has had."""

    needs_order = True

    def __init__(self, cfg: E3BConfig, spaces: Spaces) -> None:
        super().__init__(cfg, spaces)
        self.reached = cfg.variant == "paper"
        self.features = StateFeatures("idf", "raw", spaces, cfg.feature_dim, cfg.hidden)
        self.ellipse = InverseCovariance(cfg.feature_dim, cfg.ridge)

    def score(self, batch: Transitions) -> Tensor:
        """The elliptical bonus of each transition, (T, N)."""
        segments = self._segments(batch)
        encoded = segments.encode(self._encode, *self._states(batch))
        bonus = self.ellipse.compute_bonuses(segments, encoded)[segments.row_places].to(encoded.dtype)
        return bonus if self.reached else bonus.where(segments.earlier > 0, 0)

    def loss(self, batch: Transitions, rng: Rng) -> Tensor:
        """How badly the action is told from the two encodings."""
        return self.features.encoder_loss(batch, self.noise)

    @torch.no_grad()
    def observe(self, batch: Transitions, parts: Components) -> None:
        """Let the states of episodes still under way into C, begin anew where an episode ended."""
        segments = self._segments(batch)
        self.ellipse.add(segments, segments.encode_ongoing(self._encode, *self._states(batch)))

    def _encode(self, states: Tensor) -> Tensor:
        encoded: Tensor = self.noise(self.features(states))
        return encoded

    def _segments(self, batch: Transitions) -> EpisodeSegments:
        return EpisodeSegments.from_batch(
            batch, self.ellipse.episode_lengths(batch.valid.shape[1]), include_start=self.reached
        )

    def _states(self, batch: Transitions) -> tuple[Tensor, Tensor]:
        """The state of each row, and the one before the first row of an episode."""
        return (batch.next_obs if self.reached else batch.obs), batch.obs
