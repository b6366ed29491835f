"""State marginal matching (Lee et al. 2019, arXiv:1906.05274).

    r(s, z) = h(s|z) + log K ∓ h(z|s)
    h(s|z)  = ‖x − D(μ(x) + σ(x)·ε)‖²,       x = [φ(s), z]          −log density of s under skill z, less constants
    h(z|s)  = −log d(z | φ(s))
    loss    = β·KL(N(μ, σ²) ‖ N(0, 1)) + mean_i (x − D(μ + σ·ε))²_i  −  log d(z | φ(s))

    z: the skill the policy follows, one of K = `skills`.  μ, σ: `encoder`, D: `decoder`, a variational autoencoder.
    d: `discriminator`.  φ: the state itself, or frozen random convolutions of pixels (`trunk`).

With a uniform target the mixture of all skills' states should have the greatest entropy, H[s] = H[s|z] + H[z] − H[z|s].
Each skill is paid for what it has seldom seen, and, in the paper, for states that tell which skill it is.

Variants:

    paper      − h(z|s): states that tell the skill pay
    urlb       + h(z|s): states that do not tell the skill pay

Differs from the paper: the target is uniform and log p*(s) left out. The density is that of the states learned from,
where the paper averages over all earlier policies; a replay does much the same.
Differs from the official code: RLAgent/state-marginal-matching and URLB both add the discriminator's error, against the
paper's sign; `urlb` is both. They draw ε for every state, here one draw serves a whole batch (scoring is pure, and what
a state is paid does not depend on its place). They learn with 1e-2 (density) and 1e-3 (discriminator), here with
`--curiosity.learning-rate`; RLAgent's discriminator has 300 units. URLB's test for changing skills is inverted, so that
it searches the best skill while it should draw them; here one is drawn for each episode.
Cost: one pass of autoencoder and discriminator per score, one with gradient per learning epoch; memory two networks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor, nn

from intrigue.fields import NonNegativeFloat, PositiveInt
from intrigue.nn.counter_rng import CounterRng
from intrigue.nn.networks import StateTrunk, freeze, init_orthogonal, mlp, relu_net
from intrigue.rewards.base import IntrinsicReward, Traits
from intrigue.rewards.registry import register_reward
from intrigue.rng import Rng, normal
from intrigue.skills import SkillSpec
from intrigue.spaces import Spaces
from intrigue.types import Components, Transitions

CITATION = """@article{lee2019smm,
  title   = {Efficient Exploration via State Marginal Matching},
  author  = {Lee, Lisa and Eysenbach, Benjamin and Parisotto, Emilio and Xing, Eric and Levine, Sergey
             and Salakhutdinov, Ruslan},
  journal = {arXiv preprint arXiv:1906.05274},
  year    = {2019}
}"""


@dataclass(frozen=True)
class SMMConfig:
    """Settings of state marginal matching."""

    variant: Literal["paper", "urlb"] = "urlb"  # the sign of the discriminator's term
    skills: PositiveInt = 4  # K: both codes
    density_hidden: PositiveInt = 150  # width of the autoencoder's layers: both codes
    code: PositiveInt = 128  # numbers the autoencoder squeezes a state into: URLB
    beta: NonNegativeFloat = 0.5  # weight of the divergence: both codes
    feature_dim: PositiveInt = 512  # pixels: width after the convolutions: Nature
    hidden: PositiveInt = 1024  # width of the discriminator's two layers: URLB; official 300


@register_reward("smm", config=SMMConfig)
@final
class SMM(IntrinsicReward):
    """How little a skill has seen of a state, and how well the state tells the skill."""

    traits = Traits(inputs=frozenset({"obs"}), vmappable=True)
    finetune_skill = "tried"

    def __init__(self, cfg: SMMConfig, spaces: Spaces) -> None:
        super().__init__(cfg, spaces)
        self.cfg = cfg
        self.signed = cfg.variant == "paper"
        self.trunk = freeze(StateTrunk(spaces.obs, cfg.feature_dim))
        state = cfg.feature_dim if spaces.obs.kind == "pixels" else spaces.obs.size
        wide, inner = state + cfg.skills, cfg.density_hidden
        heads = nn.Linear(inner, 2 * cfg.code)
        self.encoder = init_orthogonal(nn.Sequential(mlp((wide, inner, inner), nn.ReLU), nn.ReLU(), heads), 1.0)
        for head in heads.weight.detach().chunk(2):  # mean and log-variance are layers of their own in both codes
            nn.init.orthogonal_(head)
        self.decoder = relu_net(cfg.code, inner, wide)
        self.discriminator = relu_net(state, cfg.hidden, cfg.skills)
        self.draws = CounterRng()

    @classmethod
    def skills(cls, cfg: SMMConfig) -> SkillSpec:
        """One of K classes for each episode."""
        return SkillSpec("one-hot", cfg.skills, 0)

    def score(self, batch: Transitions) -> Tensor:
        """The log-ratios of the paper, added, (T, N)."""
        return self.score_parts(batch)[0]

    def score_parts(self, batch: Transitions) -> tuple[Tensor, Components]:
        """The bonus, and the two entropies it is made of."""
        state = self.noise(self.trunk(batch.obs))
        surprise = self._density(state, batch.skill, self.draws.normal(self.cfg.code))[0].sum(-1)
        doubt = self._doubt(state, batch.skill)
        skill_term = -doubt if self.cfg.variant == "paper" else doubt
        return surprise + math.log(self.cfg.skills) + skill_term, {"state_entropy": surprise, "skill_entropy": doubt}

    def loss(self, batch: Transitions, rng: Rng) -> Tensor:
        """The autoencoder's loss and the discriminator's, added."""
        state = self.noise(self.trunk(batch.obs))
        lead = batch.reward.shape
        drawn = normal((*lead, self.cfg.code), rng)
        error, mean, log_var = self._density(state, batch.skill, drawn)
        divergence = (mean.square() + log_var.exp() - 1 - log_var).sum(-1) / 2
        loss: Tensor = self.cfg.beta * divergence.mean() + error.mean() + self._doubt(state, batch.skill).mean()
        return loss

    @torch.no_grad()
    def observe(self, batch: Transitions, parts: Components) -> None:
        """Another ε for the next batch."""
        self.draws.advance()

    def _density(self, state: Tensor, skill: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Squared error of each number of [φ(s), z] (T, N, D), and the code's mean and log-variance."""
        known = torch.cat([state, skill.to(state.dtype)], -1)
        mean, log_var = self.encoder(known).chunk(2, -1)
        code = mean + (log_var / 2).exp() * drawn.to(state.dtype)
        return (known - self.decoder(code)).square(), mean, log_var

    def _doubt(self, state: Tensor, skill: Tensor) -> Tensor:
        """−log d(z|s), (T, N)."""
        log_d = self.discriminator(state).log_softmax(-1)
        doubt: Tensor = -(log_d * skill.to(log_d.dtype)).sum(-1)
        return doubt
