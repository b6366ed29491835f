"""Never give up (Badia et al. 2020, arXiv:2002.06038, section 2).

    r(s') = r_episodic(s') · min( max( α(s'), 1 ), L )

    r_episodic: `episodic`, novelty within the episode (see intrigue.rewards.episodic).
    α: `lifelong`, how unusual the state's RND error is among all so far (see intrigue.rewards.rnd_alpha).  L: `clip`.

The expression `episodic * clip(rnd_alpha, 1, 5)` is the same bonus; its parts' states are these modules' states.

Differs from the paper: this is the bonus alone, for any agent of this library, not the agent: no family of 32 mixtures
and discounts, no recurrent replay. What differs in the two factors stands on their pages.
Differs from the official code: there is none; constants are those of the two ports read (Deep RL Zoo and RLeXplore);
where these differ is said on the page of `episodic`.
Cost: those of its two factors together: three encoder passes per score, four per learning epoch (three with gradient).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import final

import torch
from torch import Tensor

from intrigue.fields import NonNegativeFloat, PositiveFloat, PositiveInt
from intrigue.rewards.base import IntrinsicReward
from intrigue.rewards.episodic import Episodic, EpisodicConfig
from intrigue.rewards.registry import register_reward
from intrigue.rewards.rnd_alpha import RNDAlpha, RNDAlphaConfig
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
class NGUConfig:
    """Settings of never give up: those of its two factors, and the limit of the second."""

    feature_dim: PositiveInt = 32  # NGU: size of the controllable state
    hidden: PositiveInt = 128  # NGU ports: hidden layer of the inverse model
    k: PositiveInt = 10  # NGU: nearest neighbours
    capacity: PositiveInt = 30_000  # NGU: states remembered of an episode
    epsilon: PositiveFloat = 1e-4  # kernel constant of both ports read; a summary of NGU's text has 1e-3
    cluster_distance: NonNegativeFloat = 0.008  # NGU: squared distance, over the usual one, below which states are one
    pseudo_count: PositiveFloat = 1e-3  # NGU: c, which bounds the bonus of a state unlike all others
    max_similarity: PositiveFloat = 8.0  # NGU: above this the bonus is zero
    lifelong_dim: PositiveInt = 128  # Deep RL Zoo's NGU: outputs of the random network
    lifelong_hidden: PositiveInt = 512  # RND official code: dense layers of the predictor
    clip: PositiveFloat = 5.0  # NGU: L, the most the lifelong factor may be


@register_reward("ngu", config=NGUConfig)
@final
class NGU(IntrinsicReward):
    """Novelty within the episode times novelty in all of training."""

    needs_order = True

    def __init__(self, cfg: NGUConfig, spaces: Spaces) -> None:
        super().__init__(cfg, spaces)
        self.cfg = cfg
        self.episodic = Episodic(_episodic(cfg), spaces)
        self.lifelong = RNDAlpha(RNDAlphaConfig(cfg.lifelong_dim, cfg.lifelong_hidden), spaces)
        self.noise = self.episodic.noise

    @classmethod
    def refusal(cls, cfg: NGUConfig, spaces: Spaces) -> str | None:
        """What the episodic factor refuses, and a limit below the least."""
        if cfg.clip < 1:
            return f"the lifelong factor is at least 1, so it cannot be held below clip = {cfg.clip:g}. Use 1 or more."
        return Episodic.refusal(_episodic(cfg), spaces)

    def score(self, batch: Transitions) -> Tensor:
        """The product of both factors, (T, N)."""
        return self.score_parts(batch)[0]

    def score_parts(self, batch: Transitions) -> tuple[Tensor, Components]:
        """The product, both factors before it, and what each was made of."""
        episodic, near = self.episodic.score_parts(batch)
        alpha, known = self.lifelong.score_parts(batch)
        return episodic * alpha.clamp(1, self.cfg.clip), {"episodic": episodic, "lifelong": alpha, **near, **known}

    def loss(self, batch: Transitions, rng: Rng) -> Tensor:
        """The inverse model's and the predictor's, added."""
        return self.episodic.loss(batch, rng) + self.lifelong.loss(batch, rng)

    @torch.no_grad()
    def observe(self, batch: Transitions, parts: Components) -> None:
        """Both factors observe."""
        self.episodic.observe(batch, parts)
        self.lifelong.observe(batch, parts)


def _episodic(cfg: NGUConfig) -> EpisodicConfig:
    return EpisodicConfig(**{each.name: getattr(cfg, each.name) for each in fields(EpisodicConfig)})
