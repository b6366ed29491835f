"""Active pre-training: entropy of the states in a batch (Liu & Abbeel 2021, arXiv:2103.04551, section 4).

    r(s)  = log(1 + mean_j u_j)   or   log(1 + u_k),       u_j = max(‖φ(s) − φ(s⁽ʲ⁾)‖₂ / ν − c, 0)

    s⁽ʲ⁾: the j-th nearest of the batch, j ≤ k.  φ: `features`.  ν, c: normaliser and clip (`entropy`).

A state far from the others of its batch is rare under the policy; the logarithm of the distance to its neighbours
estimates its share of the entropy.

Variants:

    paper      φ by contrast of two views; the state reached; k others, mean; distances as they are
    official   φ by contrast of two views; the state reached; k = 16 with itself, the k-th; ν running variance; c = 5e-4
    urlb       φ: one layer, LayerNorm, tanh, trained by forward and inverse model; the state left; k = 12 with itself,
               mean; no normaliser
    urlb-2021  φ: two layers, trained the same; the state reached; k = 12 with itself, mean; ν running mean; c = 1e-4

Differs from the paper: batches are what the agent hands over, a rollout or a sample of its replay, where the paper
samples its replay. The running mean it divides the bonus by is left to `Curiosity`'s scale, and its power of the
distances is taken as 1, as in every code; its k is unverified. On vectors the views of the contrast are scaled at
random (ours).
Differs from the official code: forhaoliu/mini_apt measures 3136 convolved numbers, here a dense layer follows; its
batches hold two views of each state and both are neighbours. What it calls deviation is a variance, and we keep that.
URLB's `icm_apt`: HEAD and the first release (710c3eb) disagree in encoder, state, normaliser and clip, hence two names;
its published numbers predate HEAD. Convolutions are the reward's own and learn from its loss. Population instead of
sample variance.
Cost: one encoder pass and one B×B product per score; two encoder passes and two models (with gradient) per learning
epoch; memory one network.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, final

import torch
from torch import Tensor, nn

from intrigue.fields import NonNegativeInt, PositiveFloat, PositiveInt
from intrigue.nn.contrastive import ContrastiveFeatures
from intrigue.nn.icm_dynamics import IcmDynamics
from intrigue.nn.networks import StateTrunk, icm_trunk, init_orthogonal, mlp
from intrigue.nn.particle_entropy import Normalizer, ParticleEntropy
from intrigue.rewards.base import IntrinsicReward, Traits
from intrigue.rewards.registry import register_reward
from intrigue.rng import Rng
from intrigue.spaces import Spaces
from intrigue.types import Components, Transitions

CITATION = """@inproceedings{liu2021apt,
  title     = {Behavior From the Void: Unsupervised Active Pre-Training},
  author    = {Liu, Hao and Abbeel, Pieter},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2021},
  note      = {arXiv:2103.04551}
}"""


@dataclass(frozen=True)
class APTConfig:
    """Settings of active pre-training."""

    variant: Literal["paper", "official", "urlb", "urlb-2021"] = "urlb"  # encoder, state, neighbours, normaliser
    k: NonNegativeInt = 0  # neighbours; 0 is the variant's own: official 16, the others 12
    feature_dim: PositiveInt = 512  # of an encoding: URLB icm_rep_dim
    hidden: PositiveInt = 1024  # width of the hidden layers: URLB
    projection: PositiveInt = 256  # paper, official: outputs of the head the contrast is made with: official code
    temperature: PositiveFloat = 0.07  # paper, official: of the contrast: official code
    backend: Literal["exact", "faiss"] = "exact"  # neighbour search; faiss is approximate, for huge batches on a CPU


class Choices(NamedTuple):
    """What a variant computes."""

    encoder: Literal["contrast", "trunk", "layers"]
    state: Literal["obs", "next_obs"]
    k: int
    count_self: bool
    average: bool
    normalizer: Normalizer
    clip: float


VARIANTS = {
    "paper": Choices("contrast", "next_obs", 12, False, True, "none", 0.0),
    "official": Choices("contrast", "next_obs", 16, True, False, "variance", 5e-4),  # README's command, train.py
    "urlb": Choices("trunk", "obs", 12, True, True, "none", 0.0),  # be04753 icm_apt.yaml
    "urlb-2021": Choices("layers", "next_obs", 12, True, True, "mean", 1e-4),  # 710c3eb icm_apt.yaml
}


@register_reward("apt", config=APTConfig)
@final
class APT(IntrinsicReward):
    """Distance of a state to its nearest neighbours in the batch."""

    traits = Traits(vmappable=True)

    def __init__(self, cfg: APTConfig, spaces: Spaces) -> None:
        super().__init__(cfg, spaces)
        self.cfg, self.choices = cfg, VARIANTS[cfg.variant]
        if cfg.backend == "faiss":  # searches on the host
            self.traits = replace(self.traits, vmappable=False)
        _, _, k, count_self, average, normalizer, clip = self.choices
        self.features: nn.Module
        self.dynamics: IcmDynamics | None = None
        if self.choices.encoder == "contrast":
            sizes = {"feature_dim": cfg.feature_dim, "hidden": cfg.hidden, "projection": cfg.projection}
            self.features = ContrastiveFeatures(spaces.obs, self.noise, temperature=cfg.temperature, **sizes)
        else:
            self.features = _trained_by_dynamics(self.choices.encoder, spaces, cfg)
            self.dynamics = IcmDynamics(cfg.feature_dim, spaces.action, cfg.hidden)
        self.entropy = ParticleEntropy(
            cfg.k or k,
            count_self=count_self,
            average=average,
            normalizer=normalizer,
            clip=clip,
            backend=cfg.backend,
        )

    def score(self, batch: Transitions) -> Tensor:
        """The logarithm of one plus the distance to the neighbours, (T, N)."""
        return self.score_parts(batch)[0]

    def score_parts(self, batch: Transitions) -> tuple[Tensor, Components]:
        """The bonus and the distance behind it."""
        encoded = self.noise(self.features(getattr(batch, self.choices.state)))
        return self.entropy.score(encoded, batch.valid)

    def loss(self, batch: Transitions, rng: Rng) -> Tensor:
        """What trains the encoder: contrast, or forward and inverse errors."""
        if isinstance(self.features, ContrastiveFeatures):
            return self.features.loss(batch.obs, rng)
        assert self.dynamics is not None
        phi, next_phi = (self.noise(self.features(obs)) for obs in (batch.obs, batch.next_obs))
        loss: Tensor = self.dynamics(phi, next_phi, batch.action)
        return loss

    @torch.no_grad()
    def observe(self, batch: Transitions, parts: Components) -> None:
        """Commit the running normaliser."""
        self.entropy.observe(parts, batch.valid)


def _trained_by_dynamics(kind: Literal["trunk", "layers"], spaces: Spaces, cfg: APTConfig) -> nn.Module:
    """URLB's encoders over a state, or over convolved pixels: HEAD's trunk, or the first release's two layers."""
    if kind == "trunk":
        return icm_trunk(spaces.obs, cfg.feature_dim)
    trunk = StateTrunk(spaces.obs, cfg.feature_dim)
    return nn.Sequential(trunk, init_orthogonal(mlp((trunk.width, cfg.hidden, cfg.feature_dim), nn.ReLU), 1.0))
