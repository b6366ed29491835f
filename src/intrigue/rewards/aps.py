"""Active pretraining with successor features (Liu & Abbeel 2021, arXiv:2108.13956).

    r(s', w) = log(1 + mean_j u_j) + w · φ̂(s')            u_j: distances from φ(s') to its k nearest in the batch
    loss     = −w · φ̂(s')                                  (intrigue.nn.particle_entropy)

    w: the task the policy follows, a unit vector of `skill_dim` numbers.  φ: `features` after `trunk`, trained.
    φ̂ = φ/‖φ‖: the mean direction of a von Mises-Fisher q(w | s'), whose log-likelihood is w · φ̂ but for a constant.

The first term (`entropy`) pays for states far from others, the second (`projection`) for states that tell the task.
`regress_task` finds the task of a reward that was seen, the last step of the method.

Variants:

    paper      k neighbours, the state itself not among them; distances as they are
    urlb       the state itself is one of the k; u = max(d/mean − clip, 0), mean: running mean of all distances

Differs from the paper: any agent that takes skills, where the paper has successor features, Q = w · ψ(s, a, w); the
agent ddpg has them too (`critic="successor"`, preset `aps-urlb`). What the paper divides the bonus by is left to
`Curiosity`'s scale, and its power of the distances is taken as 1, as in URLB by the same author. Unverified: these two,
and the paper's k, `skill_dim` and widths, which are URLB's here.
Differs from the official code: URLB exchanges the arguments of least squares when it regresses a task: features on
rewards instead of rewards on features, which finds the task only where features are uncorrelated and of one size. It
also looks at the states left, where φ was trained on states reached. `regress_task` has both the right way round. URLB
draws tasks whenever the run's step count is a multiple of 5, here each lasts 5 steps. Its neighbours are those of 1,024
replayed rows, ours of the batch at hand.
Cost: one pass of φ and a chunked neighbour search per score, one pass with gradient per learning epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor
from torch.nn import functional

from intrigue.fields import NonNegativeFloat, PositiveInt
from intrigue.nn.networks import StateTrunk, relu_net
from intrigue.nn.particle_entropy import ParticleEntropy
from intrigue.rewards.base import IntrinsicReward, Traits
from intrigue.rewards.registry import register_reward
from intrigue.rng import Rng
from intrigue.skills import SkillSpec
from intrigue.spaces import Spaces
from intrigue.types import Components, Transitions

CITATION = """@inproceedings{liu2021aps,
  title     = {{APS}: Active Pretraining with Successor Features},
  author    = {Liu, Hao and Abbeel, Pieter},
  booktitle = {International Conference on Machine Learning},
  year      = {2021},
  note      = {arXiv:2108.13956}
}"""


@dataclass(frozen=True)
class APSConfig:
    """Settings of APS."""

    variant: Literal["paper", "urlb"] = "urlb"  # who counts as a neighbour, and what distances are divided by
    skill_dim: PositiveInt = 10  # numbers of a task: URLB sf_dim
    every: PositiveInt = 5  # steps a task lasts: URLB
    k: PositiveInt = 12  # neighbours: URLB, where the state itself is one
    clip: NonNegativeFloat = 1e-4  # urlb: taken off each distance after dividing: URLB knn_clip
    feature_dim: PositiveInt = 512  # pixels: width after the convolutions: Nature
    hidden: PositiveInt = 1024  # width of the two hidden layers of φ: URLB


@register_reward("aps", config=APSConfig)
@final
class APS(IntrinsicReward):
    """Entropy of the states reached, and how well they tell the task."""

    signed = True
    traits = Traits(vmappable=True)
    finetune_skill = "regressed"
    finetune_copies = ("trunk.", "features.")  # URLB leaves them as first drawn: tasks regressed on untrained features

    def __init__(self, cfg: APSConfig, spaces: Spaces) -> None:
        super().__init__(cfg, spaces)
        self.trunk = StateTrunk(spaces.obs, cfg.feature_dim)
        self.features = relu_net(self.trunk.width, cfg.hidden, cfg.skill_dim)
        if cfg.variant == "urlb":
            self.particles = ParticleEntropy(cfg.k, count_self=True, normalizer="mean", clip=cfg.clip)
        else:
            self.particles = ParticleEntropy(cfg.k, count_self=False)

    @classmethod
    def skills(cls, cfg: APSConfig) -> SkillSpec:
        """Unit vectors."""
        return SkillSpec("sphere", cfg.skill_dim, cfg.every)

    def score(self, batch: Transitions) -> Tensor:
        """Entropy plus projection, (T, N)."""
        return self.score_parts(batch)[0]

    def score_parts(self, batch: Transitions) -> tuple[Tensor, Components]:
        """The bonus, its two terms, and the distances the entropy is made of."""
        encoded = self._encode(batch.next_obs)
        entropy, parts = self.particles.score(encoded, batch.valid)
        projection = project(encoded, batch.skill)
        return entropy + projection, {**parts, "entropy": entropy, "projection": projection}

    def loss(self, batch: Transitions, rng: Rng) -> Tensor:
        """How badly the states reached tell the task."""
        return -project(self._encode(batch.next_obs), batch.skill).mean()

    def observe(self, batch: Transitions, parts: Components) -> None:
        """The running mean of the distances moves on."""
        self.particles.observe(parts, batch.valid)

    @torch.no_grad()
    def task_from(self, batch: Transitions) -> Tensor:
        """The task (skill_dim,) that the batch's own rewards ask for."""
        directions = functional.normalize(self._encode(batch.next_obs), dim=-1)
        return regress_task(directions[batch.valid], batch.reward[batch.valid])

    def _encode(self, obs: Tensor) -> Tensor:  # (T, N, skill_dim)
        encoded: Tensor = self.noise(self.features(self.trunk(obs)))
        return encoded


def project(encoded: Tensor, task: Tensor) -> Tensor:
    """w · φ̂ of encodings and tasks (T, N, D), in [−1, 1]."""
    return (functional.normalize(encoded, dim=-1) * task.to(encoded.dtype)).sum(-1)


def regress_task(features: Tensor, reward: Tensor) -> Tensor:
    """The unit vector along argmin_w ‖Φ w − r‖², of features (B, D) and rewards (B,); the shortest where many fit.

    Zero where the rewards are all zero: no task was seen.
    """
    fitted = torch.linalg.pinv(features.double()) @ reward.double()
    return functional.normalize(fitted, dim=-1).to(features.dtype)
