"""Random network distillation (Burda et al. 2018, arXiv:1810.12894, section 2.2).

    r(s') = mean_d ( f̂_d(s') − f_d(s') )²

    f: `target`, random and frozen.  f̂: `predictor`, trained to match f on the states visited.  d: `feature_dim`.

Differs from the paper: observations are normalised by `Curiosity` (its moments and clip), not here; on pixels all
stacked frames are seen where the original sees the last one. Differs from the official code: the dense layer of the
target keeps the Disagreement initialisation of `ConvTrunk` instead of orthogonal √2.
Cost: two encoder passes per score, one more (with gradient) per learning epoch; memory two networks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from torch import Generator, Tensor, nn

from intrigue.fields import PositiveInt
from intrigue.networks import Encoder, freeze, mlp
from intrigue.rewards.base import IntrinsicReward
from intrigue.rewards.registry import register_reward
from intrigue.spaces import Spaces
from intrigue.types import Transitions

CITATION = """@inproceedings{burda2019rnd,
  title     = {Exploration by Random Network Distillation},
  author    = {Burda, Yuri and Edwards, Harrison and Storkey, Amos and Klimov, Oleg},
  booktitle = {International Conference on Learning Representations},
  year      = {2019},
  note      = {arXiv:1810.12894}
}"""


@dataclass(frozen=True)
class RNDConfig:
    """Settings of random network distillation."""

    feature_dim: PositiveInt = 512  # official code: 512
    hidden: PositiveInt = 512  # official code: two dense layers of 512 after the predictor's trunk


@register_reward("rnd", config=RNDConfig)
@final
class RND(IntrinsicReward):
    """Error of predicting a fixed random network on the state reached."""

    def __init__(self, cfg: RNDConfig, spaces: Spaces) -> None:
        super().__init__(cfg, spaces)
        self.target = freeze(Encoder(spaces.obs, cfg.feature_dim, cfg.hidden))
        trunk = Encoder(spaces.obs, cfg.feature_dim, cfg.hidden)
        head = mlp((cfg.feature_dim, cfg.hidden, cfg.hidden, cfg.feature_dim), nn.ReLU)
        self.predictor = nn.Sequential(trunk, nn.ReLU(), head)

    def _error(self, batch: Transitions) -> Tensor:  # (T, N)
        wanted = self.noise(self.target(batch.next_obs))
        error: Tensor = (self.predictor(batch.next_obs) - wanted).square().mean(-1)
        return error

    def score(self, batch: Transitions) -> Tensor:
        """Squared prediction error on s', (T, N)."""
        return self._error(batch)

    def loss(self, batch: Transitions, rng: Generator) -> Tensor:
        """The same error, averaged over the batch."""
        return self._error(batch).mean()
