"""Random network distillation (Burda et al. 2018, arXiv:1810.12894, section 2.2).

    r(s') = ‖ f̂(s') − f(s') ‖²

    f: `target`, random and frozen.  f̂: `predictor`, trained to match f on the states visited.

States seen often are predicted well; which ones is decided by the states alone, so a random outcome does not pay for
ever.

Variants:

    paper      the equation above, summed over the features
    official   the same, averaged over the features
    urlb       mean_d (f̂_d(ŝ) − f_d(ŝ))² / σ of the state left, ŝ whitened by its batch and clipped to ± 5,
               σ the running deviation of these errors, this batch included; both networks alike, two hidden layers

Differs from the paper: observations are normalised by `Curiosity` (its moments and clip), not here. The paper and its
code see the last of four stacked frames; so does `last_channels=1`, where by default all channels are seen, because an
image may as well be in colour. Vectors, which the paper does not have, go through tanh layers; after those and a ReLU
the predictor has three layers, where on pixels it has the paper's two beyond the target's.
Differs from the official code: openai/random-network-distillation drops samples from the predictor's loss at random;
`curiosity.update_fraction` does. rll-research/url_benchmark trains before it scores; here the bonus comes first. Its
whitening counts every row of the batch, here rows that are no transitions do not count.
Cost: two network passes per score, with gradient through one of them per learning epoch; memory two networks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, final

import torch
from torch import Tensor, nn

from intrigue.fields import NonNegativeInt, PositiveInt
from intrigue.nn.networks import Encoder, freeze, init_orthogonal, mlp
from intrigue.nn.normalize import Moments, RunningMoments, valid_moments
from intrigue.rewards.base import IntrinsicReward, Traits
from intrigue.rewards.registry import register_reward
from intrigue.rng import Rng
from intrigue.spaces import ObsSpec, Spaces
from intrigue.types import Components, Transitions

CITATION = """@inproceedings{burda2019rnd,
  title     = {Exploration by Random Network Distillation},
  author    = {Burda, Yuri and Edwards, Harrison and Storkey, Amos and Klimov, Oleg},
  booktitle = {International Conference on Learning Representations},
  year      = {2019},
  note      = {arXiv:1810.12894}
}"""

# urlb: what PyTorch's BatchNorm1d adds to a variance, the clip of whitened states, and what keeps σ from being zero.
WHITENING_EPSILON, WHITENED_CLIP, SMALLEST_DEVIATION = 1e-5, 5.0, 1e-8


@dataclass(frozen=True)
class RNDConfig:
    """Settings of random network distillation."""

    variant: Literal["paper", "official", "urlb"] = "official"  # sum or mean of the errors, s' or s, whitened or not
    feature_dim: PositiveInt = 512  # official code and URLB: 512
    hidden: NonNegativeInt = 0  # width of dense layers; 0 is the variant's: urlb 1024, others 512 (official code)
    last_channels: NonNegativeInt = 0  # newest channels of an image that are seen: official 1, of grey frames; 0 is all

    @property
    def width(self) -> int:
        """Width of the dense layers: what is asked for, or what URLB and the official code have."""
        return self.hidden or (1024 if self.variant == "urlb" else 512)


@register_reward("rnd", config=RNDConfig)
@final
class RND(IntrinsicReward):
    """Error of predicting a fixed random network."""

    traits = Traits(vmappable=True, cuda_graph_safe=True)

    def __init__(self, cfg: RNDConfig, spaces: Spaces) -> None:
        super().__init__(cfg, spaces)
        self.cfg = cfg
        self.traits = replace(self.traits, inputs=frozenset({"obs" if cfg.variant == "urlb" else "next_obs"}))
        spec = spaces.obs
        if spec.kind == "pixels" and cfg.last_channels:
            spec = ObsSpec("pixels", (min(cfg.last_channels, spec.shape[0]), *spec.shape[1:]))
        self.channels = slice(-spec.shape[0], None) if spec.kind == "pixels" else None
        self.target, self.predictor = _networks(cfg, spec)
        self.moments = RunningMoments() if cfg.variant == "urlb" else None

    @classmethod
    def refusal(cls, cfg: RNDConfig, spaces: Spaces) -> str | None:
        """URLB's networks read the numbers of a state."""
        if cfg.variant == "urlb" and spaces.obs.kind == "pixels":
            return "variant 'urlb' reads state vectors and takes no images. Use variant 'official' or 'paper'."
        return None

    def score(self, batch: Transitions) -> Tensor:
        """Prediction error on s', or on s divided by its running deviation (urlb), (T, N)."""
        return self.score_parts(batch)[0]

    def score_parts(self, batch: Transitions) -> tuple[Tensor, Components]:
        """The bonus; urlb: and the error it was made of."""
        error = self._error(batch)
        if self.moments is None:
            return error, {}
        deviation = self._merge(self.moments, error, batch).var.sqrt() + SMALLEST_DEVIATION
        return error / deviation.to(error.dtype), {"error": error}

    def loss(self, batch: Transitions, rng: Rng) -> Tensor:
        """The same error, averaged over the batch."""
        return self._error(batch).mean()

    @torch.no_grad()
    def observe(self, batch: Transitions, parts: Components) -> None:
        """urlb: commit the errors whose deviation `score_parts` used."""
        if self.moments is not None:
            self.moments.commit(self._merge(self.moments, parts["error"], batch))

    @staticmethod
    def _merge(moments: RunningMoments, error: Tensor, batch: Transitions) -> Moments:
        """The running moments with this batch's errors; URLB merges sample variances."""
        return moments.moments().merge(valid_moments(error, batch.valid, unbiased=True))

    def _error(self, batch: Transitions) -> Tensor:  # (T, N)
        seen = self._seen(batch)
        wanted = self.noise(self.target(seen))
        squared: Tensor = (self.predictor(seen) - wanted).square()
        return squared.sum(-1) if self.cfg.variant == "paper" else squared.mean(-1)

    def _seen(self, batch: Transitions) -> Tensor:
        """What the networks read of each transition, (T, N, ...)."""
        if self.cfg.variant == "urlb":
            return whiten(batch.obs, batch.valid)
        return batch.next_obs if self.channels is None else batch.next_obs[:, :, self.channels]


def whiten(states: Tensor, valid: Tensor) -> Tensor:
    """States (T, N, S) by the mean and variance of the valid ones, as BatchNorm without gain trains; clipped."""
    counted = valid.unsqueeze(-1)
    count = valid.sum().clamp_min(1)
    mean = states.where(counted, 0).sum((0, 1)) / count
    offset = states - mean
    var = offset.where(counted, 0).square().sum((0, 1)) / count
    return (offset / (var + WHITENING_EPSILON).sqrt()).clamp(-WHITENED_CLIP, WHITENED_CLIP)


def _networks(cfg: RNDConfig, spec: ObsSpec) -> tuple[nn.Module, nn.Module]:
    """Target and predictor, begun as their sources begin them."""
    target: nn.Module
    if cfg.variant == "urlb":
        sizes = (spec.size, cfg.width, cfg.width, cfg.feature_dim)
        target, predictor = (init_orthogonal(mlp(sizes, nn.ReLU), 1.0) for _ in range(2))
        return freeze(target), predictor
    if spec.kind == "vector":
        target = Encoder(spec, cfg.feature_dim, cfg.width)
        trunk = Encoder(spec, cfg.feature_dim, cfg.width)
        head = mlp((cfg.feature_dim, cfg.width, cfg.width, cfg.feature_dim), nn.ReLU)
        return freeze(target), nn.Sequential(trunk, nn.ReLU(), head)
    target = init_orthogonal(Encoder(spec, cfg.feature_dim, cfg.width), math.sqrt(2))
    trunk = Encoder(spec, cfg.width, cfg.width)
    head = mlp((cfg.width, cfg.width, cfg.feature_dim), nn.ReLU)
    return freeze(target), init_orthogonal(nn.Sequential(trunk, nn.ReLU(), head), math.sqrt(2))
