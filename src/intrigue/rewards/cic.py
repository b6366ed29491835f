"""Contrastive intrinsic control (Laskin et al. 2022, arXiv:2202.00161).

    r     = log(1 + mean_j u_j)                 u_j: distances from h to its k nearest in the batch
    (intrigue.nn.particle_entropy) loss  = −c_ii/τ + log Σ_j exp(c_ij/τ)       c_ij = cosine of ψ(z_i) and g(s_j, s'_j),
    over the rows of a minibatch

    z: the skill the policy follows, `skill_dim` numbers in [0, 1).  ψ: `skill_net`.  f: `state_net`.
    g(s, s') = `transition_net`(f(s), f(s')): from which, among the transitions of others, the skill must be told.

The contrastive loss alone shapes the encodings; what is paid for is their entropy alone.

Variants:

    paper      h = g(s, s'); the state itself is no neighbour; distances as they are
    official   h = f(s'); the state itself is one of the k; u = max(d/var − clip, 0), var: running variance of all
               distances; the sum in the loss is max(Σ_j exp(c_ij/τ) − e^(1/τ), 1e-6) + 1e-6

Differs from the paper: any agent that takes skills, where the paper has DDPG. The abstract names the entropy of
embeddings of transitions, hence g; how the paper normalises it is unverified, and left to `Curiosity`'s scale.
Differs from the official code: rll-research/cic scores f(s') and not a transition; it divides distances by their
running *variance*, which it calls a deviation; it takes e^(1/τ), the most that a positive pair could reach, off the sum
where the positive itself was meant. All three are in `official`. Its second state network is never used, and not here.
It changes skills whenever the run's step count is a multiple of 50, here each lasts 50 steps. Its neighbours are those
of 1,024 replayed rows, ours of the batch at hand. Feature noise is on f(s) and f(s'), and reaches g through them.
Cost: one pass of f (paper: two, and one of g) and a chunked neighbour search per score; per learning epoch two passes
of f, one of g and of ψ, and a B × B table of cosines for each minibatch of B rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor
from torch.nn import functional

from intrigue.fields import NonNegativeFloat, PositiveFloat, PositiveInt
from intrigue.nn.networks import StateTrunk, relu_net
from intrigue.nn.particle_entropy import ParticleEntropy
from intrigue.rewards.base import IntrinsicReward, Traits
from intrigue.rewards.registry import register_reward
from intrigue.rng import Rng
from intrigue.skills import SkillSpec
from intrigue.spaces import Spaces
from intrigue.types import Components, Transitions

CITATION = """@article{laskin2022cic,
  title   = {{CIC}: Contrastive Intrinsic Control for Unsupervised Skill Discovery},
  author  = {Laskin, Michael and Liu, Hao and Peng, Xue Bin and Yarats, Denis and Rajeswaran, Aravind
             and Abbeel, Pieter},
  journal = {arXiv preprint arXiv:2202.00161},
  year    = {2022}
}"""

OFFICIAL_EPSILON = 1e-6  # rll-research/cic compute_cpc_loss


@dataclass(frozen=True)
class CICConfig:
    """Settings of CIC."""

    variant: Literal["paper", "official"] = "official"  # what is scored, who is a neighbour, which sum is contrasted
    skill_dim: PositiveInt = 64  # numbers of a skill and of every encoding: official code
    every: PositiveInt = 50  # steps a skill lasts: official code
    temperature: PositiveFloat = 0.5  # τ: official code
    k: PositiveInt = 16  # neighbours: official code, where the state itself is one
    clip: NonNegativeFloat = 5e-4  # official: taken off each distance after dividing: official code
    feature_dim: PositiveInt = 512  # pixels: width after the convolutions: Nature
    hidden: PositiveInt = 1024  # width of the two hidden layers of each network: official code


@register_reward("cic", config=CICConfig)
@final
class CIC(IntrinsicReward):
    """Entropy of encodings from which the skill can be told."""

    traits = Traits(vmappable=True)
    finetune_skill = "middle"

    def __init__(self, cfg: CICConfig, spaces: Spaces) -> None:
        super().__init__(cfg, spaces)
        self.cfg = cfg
        self.trunk = StateTrunk(spaces.obs, cfg.feature_dim)
        self.state_net = relu_net(self.trunk.width, cfg.hidden, cfg.skill_dim)
        self.transition_net = relu_net(2 * cfg.skill_dim, cfg.hidden, cfg.skill_dim)
        self.skill_net = relu_net(cfg.skill_dim, cfg.hidden, cfg.skill_dim)
        if cfg.variant == "official":
            self.particles = ParticleEntropy(cfg.k, count_self=True, normalizer="variance", clip=cfg.clip)
        else:
            self.particles = ParticleEntropy(cfg.k, count_self=False)

    @classmethod
    def skills(cls, cfg: CICConfig) -> SkillSpec:
        """Numbers in [0, 1)."""
        return SkillSpec("uniform", cfg.skill_dim, cfg.every)

    def score(self, batch: Transitions) -> Tensor:
        """Entropy of the encodings, (T, N)."""
        return self.score_parts(batch)[0]

    def score_parts(self, batch: Transitions) -> tuple[Tensor, Components]:
        """The bonus, and the distances it is made of."""
        official = self.cfg.variant == "official"
        encoded = self._state(batch.next_obs) if official else self._transition(batch)
        return self.particles.score(encoded, batch.valid)

    def loss(self, batch: Transitions, rng: Rng) -> Tensor:
        """How badly the skill of each row is told from the transitions of all rows."""
        key = self._transition(batch)
        query = self.skill_net(batch.skill.to(key.dtype))
        query, key = (functional.normalize(each.flatten(0, 1), dim=-1) for each in (query, key))  # (B, skill_dim)
        logits = query @ key.mT / self.cfg.temperature  # (B, B): skills by transitions
        if self.cfg.variant == "paper":
            return (logits.logsumexp(-1) - logits.diagonal()).mean()
        others = logits.exp().sum(-1) - math.exp(1 / self.cfg.temperature)
        return ((others.clamp_min(OFFICIAL_EPSILON) + OFFICIAL_EPSILON).log() - logits.diagonal()).mean()

    def observe(self, batch: Transitions, parts: Components) -> None:
        """The running variance of the distances moves on."""
        self.particles.observe(parts, batch.valid)

    def _state(self, obs: Tensor) -> Tensor:  # (T, N, skill_dim)
        encoded: Tensor = self.noise(self.state_net(self.trunk(obs)))
        return encoded

    def _transition(self, batch: Transitions) -> Tensor:  # (T, N, skill_dim)
        both = torch.cat([self._state(batch.obs), self._state(batch.next_obs)], -1)
        encoded: Tensor = self.transition_net(both)
        return encoded
