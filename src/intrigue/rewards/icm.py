"""Intrinsic curiosity module (Pathak et al. 2017, arXiv:1705.05363, section 2.2).

    r    = η/2 ‖φ̂(s') − φ(s')‖²,      φ̂(s') = f(φ(s), a)
    loss = (1 − β) L_I + β ½ ‖φ̂(s') − φ(s')‖²

    φ: `features`.  f: `models`, one forward model (urlb: `dynamics`).  L_I: the inverse model's loss at guessing a from
    φ(s) and φ(s'), cross-entropy of classes, squared error of numbers.  η: `eta`.  β: `beta`.

What the agent cannot influence does not help to guess its action, so a φ trained that way should leave it out.

Variants:

    paper      the equations above; both losses train φ; f has two layers
    official   mean_d (φ̂_d − φ_d)², loss L_I + that, which does not train φ; f is residual      Atari
    urlb       log(1 + ‖ŝ' − s'‖₂) on the states themselves; f has two layers                     state vectors

`official` is openai/large-scale-curiosity (Burda et al. 2018, arXiv:1808.04355), from which the Atari scores called ICM
are; `encoder="random"` gives its random features, which have no inverse model.

Differs from the paper: φ is the Nature trunk of 512 features instead of four small convolutions with 288, the learning
rate of all models is the run's, and the loss is not multiplied by 10 as in its code.
Differs from the official code: pathak22/noreward-rl has η = 0.01 in the constant PREDICTION_BETA, which the paper does
not state, and multiplies by 288 instead of summing whatever number of features there is. Large-scale curiosity lets an
episode's first frame follow its last as if by an action; here s' is the true successor. URLB trains before it scores;
here the bonus comes first. Its inverse net shares nothing with its forward net on states, so it cannot change the
bonus; it is kept for its loss. `intrigue.nn.icm_dynamics` says how URLB's models take other actions than its own.
Cost: two encoder passes (nearly one for images on a CPU) and one model pass per score; two and one with gradient per
learning epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from intrigue.fields import Fraction, NonNegativeInt, PositiveFloat, PositiveInt
from intrigue.nn.encoders import StateFeatures
from intrigue.nn.forward_models import ForwardModels
from intrigue.nn.icm_dynamics import IcmDynamics
from intrigue.ops.row_norm import row_norm
from intrigue.rewards.base import IntrinsicReward, Traits
from intrigue.rewards.registry import register_reward
from intrigue.rng import Rng
from intrigue.spaces import Spaces
from intrigue.types import Transitions

CITATION = """@inproceedings{pathak2017icm,
  title     = {Curiosity-driven Exploration by Self-supervised Prediction},
  author    = {Pathak, Deepak and Agrawal, Pulkit and Efros, Alexei A. and Darrell, Trevor},
  booktitle = {International Conference on Machine Learning},
  year      = {2017},
  note      = {arXiv:1705.05363}
}"""


@dataclass(frozen=True)
class ICMConfig:
    """Settings of the intrinsic curiosity module."""

    variant: Literal["paper", "official", "urlb"] = "official"  # whose error and loss; official is the Atari studies'
    encoder: Literal["idf", "random"] = "idf"  # official: inverse-dynamics features are what ICM means
    feature_dim: PositiveInt = 512  # large-scale curiosity; paper 288; urlb has the state itself
    hidden: NonNegativeInt = 0  # width of dense layers; 0 is the variant's: paper 256, official 512, urlb 1024
    blocks: NonNegativeInt = 4  # official: residual blocks of the forward model
    beta: Fraction = 0.2  # paper: β, weight of the forward loss
    eta: PositiveFloat = 0.01  # paper: η, as its code has it

    @property
    def width(self) -> int:
        """Width of the dense layers: what is asked for, or what the paper, large-scale curiosity and URLB have."""
        return self.hidden or {"paper": 256, "official": 512, "urlb": 1024}[self.variant]


@register_reward("icm", config=ICMConfig)
@final
class ICM(IntrinsicReward):
    """Error of predicting the features of the state reached."""

    traits = Traits(vmappable=True, cuda_graph_safe=True)

    def __init__(self, cfg: ICMConfig, spaces: Spaces) -> None:
        super().__init__(cfg, spaces)
        self.cfg = cfg
        if cfg.variant == "urlb":
            self.dynamics = IcmDynamics(spaces.obs.size, spaces.action, cfg.width)
            return
        paper = cfg.variant == "paper"
        self.features = StateFeatures("joint" if paper else cfg.encoder, "raw", spaces, cfg.feature_dim, cfg.width)
        self.models = ForwardModels(
            1,
            self.features,
            spaces.action.width,
            self.noise,
            hidden=cfg.width,
            blocks=cfg.blocks,
            two_layer="orthogonal" if paper else None,
            measure="half" if paper else "mean",
        )

    @classmethod
    def refusal(cls, cfg: ICMConfig, spaces: Spaces) -> str | None:
        """URLB's models predict the numbers of a state; images have too many."""
        if cfg.variant == "urlb" and spaces.obs.kind == "pixels":
            return "variant 'urlb' predicts the state itself and takes no images. Use variant 'official' or 'paper'."
        return None

    @property
    def frozen_encoder(self) -> StateFeatures | None:
        return self.features if self.cfg.variant != "urlb" and self.features.kind == "random" else None

    def score(self, batch: Transitions) -> Tensor:
        """Prediction error on s', (T, N)."""
        if self.cfg.variant == "urlb":
            phi, next_phi = self.noise(batch.obs), self.noise(batch.next_obs)
            ahead = self.dynamics.ahead(torch.cat([phi, batch.action], -1))
            return row_norm(next_phi - ahead).log1p()
        phi, next_phi = self.features.encode_pair(batch)
        error = self.models.errors(phi, next_phi, batch.action).squeeze(-1)
        return self.cfg.eta * error if self.cfg.variant == "paper" else error

    def loss(self, batch: Transitions, rng: Rng) -> Tensor:
        """The losses of both models, weighted as the variant says."""
        if self.cfg.variant == "urlb":
            loss: Tensor = self.dynamics(self.noise(batch.obs), self.noise(batch.next_obs), batch.action)
            return loss
        inverse, forward = self.models.losses(batch, rng)
        weights = (1 - self.cfg.beta, self.cfg.beta) if self.cfg.variant == "paper" else (1.0, 1.0)
        return weights[0] * inverse + weights[1] * forward.sum()
