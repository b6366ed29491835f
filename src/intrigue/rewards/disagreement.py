"""Exploration by disagreement (Pathak et al. 2019, arXiv:1906.04161, section 3.1).

    r = E_k ‖ f_k(φ(s), a) − E_j f_j(φ(s), a) ‖²

    φ: `features`.  f_k: `models`, K = `members` of them, each trained to predict φ(s').  E: the mean over members.

Members agree on what they have learned, noise included: on a random outcome they all predict its mean. They differ by
their initial weights and by the samples each learns from.

Variants:

    paper      the equation above: the variance over members, summed over features; the paper's loss of a member is
               unverified, that of its code is used
    official   the same, averaged over features
    urlb       states themselves, unbiased variance, averaged; two-layer models, errors of first power, all samples

Differs from the paper: the reward is maximised by any agent; the paper's second way, differentiating it by the action,
is not here. Its subsets of data are drawn anew for each update (`keep`), as in its code.
Differs from the official code: pathak22/exploration-by-disagreement lets an episode's first frame follow its last as if
by an action; here s' is the true successor. Its option to compare the members' errors instead of their predictions is
not here. URLB trains before it scores; here the bonus comes first. URLB averages the loss over members, others add it.
Cost: one encoder pass and one batched pass of K models per score; with gradient, and φ(s') too, per learning epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, final

from torch import Tensor

from intrigue.fields import Limits, NonNegativeInt, PositiveFraction, PositiveInt
from intrigue.nn.encoders import StateFeatures
from intrigue.nn.forward_models import ForwardModels
from intrigue.rewards.base import IntrinsicReward, Traits
from intrigue.rewards.registry import register_reward
from intrigue.rng import Rng
from intrigue.spaces import Spaces
from intrigue.types import Transitions

CITATION = """@inproceedings{pathak2019disagreement,
  title     = {Self-Supervised Exploration via Disagreement},
  author    = {Pathak, Deepak and Gandhi, Dhiraj and Gupta, Abhinav},
  booktitle = {International Conference on Machine Learning},
  year      = {2019},
  note      = {arXiv:1906.04161}
}"""


@dataclass(frozen=True)
class DisagreementConfig:
    """Settings of exploration by disagreement."""

    variant: Literal["paper", "official", "urlb"] = "official"  # which variance of what
    encoder: Literal["random", "idf"] = "random"  # paper and official: φ; the code's default is random and frozen
    members: Annotated[int, Limits(low=2)] = 5  # K: official and URLB
    feature_dim: PositiveInt = 512  # official; urlb has the state itself
    hidden: NonNegativeInt = 0  # width of dense layers; 0 is the variant's: urlb 1024, others 512 (official code)
    blocks: NonNegativeInt = 4  # residual blocks of a model: official; urlb has none
    keep: PositiveFraction = 0.8  # share of samples each member learns from: official; urlb takes all

    @property
    def width(self) -> int:
        """Width of the dense layers: what is asked for, or what URLB and the official code have."""
        return self.hidden or (1024 if self.variant == "urlb" else 512)


@register_reward("disagreement", config=DisagreementConfig)
@final
class Disagreement(IntrinsicReward):
    """Variance among the predictions of several models."""

    traits = Traits(vmappable=True, cuda_graph_safe=True)

    def __init__(self, cfg: DisagreementConfig, spaces: Spaces) -> None:
        super().__init__(cfg, spaces)
        self.cfg = cfg
        urlb = cfg.variant == "urlb"
        kind = "identity" if urlb else cfg.encoder
        self.features = StateFeatures(kind, "raw", spaces, cfg.feature_dim, cfg.width)
        self.models = ForwardModels(
            cfg.members,
            self.features,
            spaces.action.width,
            self.noise,
            hidden=cfg.width,
            blocks=cfg.blocks,
            two_layer="uniform" if urlb else None,
            keep=1.0 if urlb else cfg.keep,
            measure="norm" if urlb else "mean",
        )

    @classmethod
    def refusal(cls, cfg: DisagreementConfig, spaces: Spaces) -> str | None:
        """URLB's models predict the numbers of a state; images have too many."""
        if cfg.variant == "urlb" and spaces.obs.kind == "pixels":
            return "variant 'urlb' predicts the state itself and takes no images. Use variant 'official' or 'paper'."
        return None

    @property
    def frozen_encoder(self) -> StateFeatures | None:
        return self.features if self.features.kind == "random" else None

    def score(self, batch: Transitions) -> Tensor:
        """Variance of the members' predictions of s', (T, N)."""
        rows: Tensor = self.models(self.features.encode_obs(batch), batch.action)  # (T, N, K, D)
        # Not Tensor.var, which is 15 times as slow over a middle axis.
        offset = rows - rows.mean(-2, keepdim=True)
        count = self.cfg.members - 1 if self.cfg.variant == "urlb" else self.cfg.members
        spread = offset.square().sum(-2) / count  # (T, N, D)
        return spread.sum(-1) if self.cfg.variant == "paper" else spread.mean(-1)

    def loss(self, batch: Transitions, rng: Rng) -> Tensor:
        """The members' losses on their shares of the samples, and the encoder's own."""
        own, each = self.models.losses(batch, rng)
        loss: Tensor = own + (each.mean() if self.cfg.variant == "urlb" else each.sum())
        return loss
