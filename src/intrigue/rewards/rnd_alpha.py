"""NGU's lifelong factor on its own (Badia et al. 2020, arXiv:2002.06038, section 2).

    α(s') = 1 + ( err(s') − μ ) / σ,        err = mean_d ( f̂_d(s') − f_d(s') )²

    err: `rnd`, error of predicting a frozen random network.  μ, σ: `errors`, running mean and standard deviation of err
    over all environments and all rows up to and including this time step.

α is not clipped: it is below 1 for states known better than most, and may be negative. `ngu` holds it between 1 and 5;
`episodic * clip(rnd_alpha, 1, 5)` is the same bonus as an expression.

Differs from the paper: its actors keep statistics of their own, ours are shared by all environments of a batch. The
paper's size of the random network could not be verified; 128 is that of the port read. Whether errors are summed or
averaged over d changes nothing in α.
Differs from the official code: there is none; the port read (Deep RL Zoo) updates its statistics with a state before
scoring it, as here.
Cost: two encoder passes per score, two more (one with gradient) per learning epoch; memory two networks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from intrigue.fields import PositiveInt
from intrigue.nn.normalize import Moments, RunningMoments
from intrigue.rewards.base import IntrinsicReward, Traits
from intrigue.rewards.registry import register_reward
from intrigue.rewards.rnd import RND, RNDConfig
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

# Added to σ, as Deep RL Zoo does: errors that never vary give α = 1.
SMALLEST = 1e-8


@dataclass(frozen=True)
class RNDAlphaConfig:
    """Settings of NGU's lifelong factor."""

    feature_dim: PositiveInt = 128  # Deep RL Zoo's NGU: outputs of both networks
    hidden: PositiveInt = 512  # RND official code: dense layers of the predictor


@register_reward("rnd_alpha", config=RNDAlphaConfig)
@final
class RNDAlpha(IntrinsicReward):
    """How unusual the RND error of the state reached is, in standard deviations above 1."""

    signed = True
    traits = Traits(inputs=frozenset({"next_obs"}))

    def __init__(self, cfg: RNDAlphaConfig, spaces: Spaces) -> None:
        super().__init__(cfg, spaces)
        self.rnd = RND(RNDConfig(variant="official", feature_dim=cfg.feature_dim, hidden=cfg.hidden), spaces)
        self.noise = self.rnd.noise
        self.errors = RunningMoments()

    def score(self, batch: Transitions) -> Tensor:
        """α of each state reached, (T, N)."""
        return self.score_parts(batch)[0]

    def score_parts(self, batch: Transitions) -> tuple[Tensor, Components]:
        """α, and the error it is made of."""
        error = self.rnd.score(batch)
        known = self._known(error, batch.valid)
        unusual = (error.double() - known.mean.unsqueeze(-1)) / (known.var.sqrt().unsqueeze(-1) + SMALLEST)
        return (1 + unusual).to(error.dtype), {"error": error}

    def loss(self, batch: Transitions, rng: Rng) -> Tensor:
        """The predictor's."""
        return self.rnd.loss(batch, rng)

    @torch.no_grad()
    def observe(self, batch: Transitions, parts: Components) -> None:
        """Let the errors of valid rows into the running moments."""
        self.errors.observe(parts["error"][batch.valid])

    def _known(self, error: Tensor, valid: Tensor) -> Moments:
        """Moments of all valid errors up to each time step, each (T,)."""
        # Offsets from a common value of their size: squares of them do not cancel.
        around = self.errors.mean
        offset = (error.double() - around).where(valid, 0)
        count, total, squares = (each.sum(1).cumsum(0) for each in (valid.double(), offset, offset.square()))
        mean = total / count.clamp_min(1)
        var = (squares / count.clamp_min(1) - mean.square()).clamp_min(0)
        return self.errors.moments().merge(Moments(count, around + mean, var))
