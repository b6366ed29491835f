"""Diversity is all you need (Eysenbach et al. 2018, arXiv:1802.06070, section 3.1 and Algorithm 1).

    r(s', z) = log q(z | s') − log p(z),      p(z) = 1/K
    loss     = −log q(z | s')

    z: the skill the policy follows, one of K = `skills`.  q: `discriminator`, trained to tell the skill from the state.

Skills that lead to states of their own are told apart and pay up to log K; skills that look alike pay nothing, and
being mistaken costs.

Variants:

    paper      the state reached; one skill for a whole episode
    official   the state left, log(p(z) + 1e-6); one skill for a whole episode
    urlb       the state reached; a new skill after `every` steps

Differs from the paper: any agent that takes skills, where the paper has soft actor-critic and its entropy as third term
of the objective (PPO has an entropy bonus of its own).
Differs from the official code: haarnoja/sac scores and teaches with the state left, s, although the paper's Algorithm 1
says s'; it has 50 skills and hidden layers of 300, ours are URLB's 16 and 1024; its options to learn p(z), to show the
discriminator actions and to subtract log p(s) are not here. URLB changes skills whenever the run's step count is a
multiple of 50, here each lasts 50 steps.
Cost: one discriminator pass per score and one with gradient per learning epoch; memory one network.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final

from torch import Tensor

from intrigue.fields import PositiveInt
from intrigue.nn.networks import StateTrunk, relu_net
from intrigue.rewards.base import IntrinsicReward, Traits
from intrigue.rewards.registry import register_reward
from intrigue.rng import Rng
from intrigue.skills import SkillSpec
from intrigue.spaces import Spaces
from intrigue.types import Components, Transitions

CITATION = """@inproceedings{eysenbach2019diayn,
  title     = {Diversity is All You Need: Learning Skills without a Reward Function},
  author    = {Eysenbach, Benjamin and Gupta, Abhishek and Ibarz, Julian and Levine, Sergey},
  booktitle = {International Conference on Learning Representations},
  year      = {2019},
  note      = {arXiv:1802.06070}
}"""

OFFICIAL_EPSILON = 1e-6  # haarnoja/sac diayn.py keeps log p(z) finite with it


@dataclass(frozen=True)
class DIAYNConfig:
    """Settings of DIAYN."""

    variant: Literal["paper", "official", "urlb"] = "urlb"  # which state is told apart, how long a skill lasts
    skills: PositiveInt = 16  # K: URLB; official 50
    every: PositiveInt = 50  # urlb: steps a skill lasts; paper and official keep it for the episode
    feature_dim: PositiveInt = 512  # pixels: width after the convolutions: Nature
    hidden: PositiveInt = 1024  # width of the two hidden layers: URLB; official 300


@register_reward("diayn", config=DIAYNConfig)
@final
class DIAYN(IntrinsicReward):
    """How well the skill can be told from the state."""

    signed = True
    traits = Traits(vmappable=True)

    def __init__(self, cfg: DIAYNConfig, spaces: Spaces) -> None:
        super().__init__(cfg, spaces)
        self.cfg = cfg
        self.trunk = StateTrunk(spaces.obs, cfg.feature_dim)
        self.discriminator = relu_net(self.trunk.width, cfg.hidden, cfg.skills)
        official = cfg.variant == "official"
        self.log_prior = math.log(1 / cfg.skills + (OFFICIAL_EPSILON if official else 0.0))

    @classmethod
    def skills(cls, cfg: DIAYNConfig) -> SkillSpec:
        """One of K classes, for the episode or for `every` steps."""
        return SkillSpec("one-hot", cfg.skills, cfg.every if cfg.variant == "urlb" else 0)

    def score(self, batch: Transitions) -> Tensor:
        """log q(z|s) − log p(z), (T, N)."""
        return self.score_parts(batch)[0]

    def score_parts(self, batch: Transitions) -> tuple[Tensor, Components]:
        """The bonus, and where the discriminator's first guess is right."""
        log_q = self._log_q(batch)
        right = log_q.argmax(-1) == batch.skill.argmax(-1)
        return told(log_q, batch.skill) - self.log_prior, {"accuracy": right.to(log_q.dtype)}

    def loss(self, batch: Transitions, rng: Rng) -> Tensor:
        """Cross-entropy of the skill followed."""
        return -told(self._log_q(batch), batch.skill).mean()

    def _log_q(self, batch: Transitions) -> Tensor:  # (T, N, K)
        state = batch.obs if self.cfg.variant == "official" else batch.next_obs
        logits: Tensor = self.discriminator(self.noise(self.trunk(state)))
        return logits.log_softmax(-1)


def told(log_q: Tensor, skill: Tensor) -> Tensor:
    """The log-likelihood (T, N) of one-hot skills (T, N, K)."""
    return (log_q * skill.to(log_q.dtype)).sum(-1)
