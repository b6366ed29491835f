"""State entropy with a random encoder (Seo et al. 2021, arXiv:2102.09430, section 4).

    r(s) = log(1 + ‖ y − y⁽ᵏ⁾ ‖₂),        y = φ(s)

    φ: `features`, random and frozen.  y⁽ᵏ⁾: the k-th nearest of y among the states remembered and those of the batch
    (`memory`, `entropy`).

A state far from what was seen before is rare; the logarithm of that distance estimates its share of the entropy of
states. A frozen φ keeps what is near near, so encodings can be kept and nothing is trained.

Variants:

    paper      the equation above, k = 3
    official   ‖ y − y⁽ᵏ⁾ ‖₂ / σ, k = 3; σ: running deviation of these distances, this batch included (its RAD code)
    a2c        log(1 + mean over the 5 nearest / σ), y itself among the five; φ not squashed (its A2C code, MiniGrid)

Differs from the paper: its memory is the learner's replay; ours holds the last `memory` states of an on-policy run. For
a replay agent set memory=0: its batch is a sample of the replay already, and states drawn twice would be remembered
twice. The weight β that decays geometrically is `Curiosity`'s, which decays linearly. φ is the Nature trunk, then
LayerNorm and tanh, where the paper has four small convolutions before these, and it sees all stacked frames.
Differs from the official code: younggyoseo/RE3 leaves out the logarithm in two of its three programs, though the paper
has it everywhere. Its running mean adds the new share instead of multiplying by it, which makes its σ² too large, by a
quarter at the second batch and by about 1/n at the n-th; ours is right. Its RAD and Dreamer programs count a state as
its own neighbour and so take k + 1 and 53; ours leaves it out (paper, official). φ keeps the initialisation of our
encoders.
Cost: one encoder pass and one search among `memory` + batch per score, one encoder pass more to remember.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from intrigue.fields import NonNegativeInt, PositiveInt
from intrigue.nn.encoders import StateFeatures
from intrigue.nn.knn import RingMemory
from intrigue.nn.normalize import Moments, RunningMoments, valid_moments
from intrigue.nn.particle_entropy import ParticleEntropy
from intrigue.rewards.base import IntrinsicReward, Traits
from intrigue.rewards.registry import register_reward
from intrigue.spaces import Spaces
from intrigue.types import Components, Transitions

CITATION = """@inproceedings{seo2021re3,
  title     = {State Entropy Maximization with Random Encoders for Efficient Exploration},
  author    = {Seo, Younggyo and Chen, Lili and Shin, Jinwoo and Lee, Honglak and Abbeel, Pieter and Lee, Kimin},
  booktitle = {International Conference on Machine Learning},
  year      = {2021},
  note      = {arXiv:2102.09430}
}"""

# Keeps σ of states that are all alike from dividing by zero; the official code has no such guard.
SMALLEST_DEVIATION = 1e-8


@dataclass(frozen=True)
class RE3Config:
    """Settings of state entropy with a random encoder."""

    variant: Literal["paper", "official", "a2c"] = "paper"  # k-th or mean of the nearest, logarithm, running deviation
    k: NonNegativeInt = 0  # neighbours; 0 is the variant's own: a2c 5 with itself, the others 3
    memory: NonNegativeInt = 10000  # states remembered: the A2C code; 0 searches in the batch alone
    neighbours_of: Literal["obs", "next_obs"] = "obs"  # official: the state left; next_obs is the state reached
    feature_dim: PositiveInt = 50  # of an encoding: the RAD and Dreamer codes; A2C 64
    hidden: PositiveInt = 512  # vectors: width of the two hidden layers, ours; the paper has only images


@register_reward("re3", config=RE3Config)
@final
class RE3(IntrinsicReward):
    """Distance to the nearest states so far, in a random encoding."""

    def __init__(self, cfg: RE3Config, spaces: Spaces) -> None:
        super().__init__(cfg, spaces)
        self.cfg = cfg
        self.traits = Traits(inputs=frozenset({cfg.neighbours_of}))
        mean = cfg.variant == "a2c"
        self.features = StateFeatures("random", "raw" if mean else "layernorm", spaces, cfg.feature_dim, cfg.hidden)
        self.entropy = ParticleEntropy(cfg.k or (5 if mean else 3), count_self=mean, average=mean, log=False)
        self.memory = RingMemory(cfg.memory, cfg.feature_dim) if cfg.memory else None
        self.moments = RunningMoments() if cfg.variant != "paper" else None

    def score(self, batch: Transitions) -> Tensor:
        """The bonus of each transition, (T, N)."""
        return self.score_parts(batch)[0]

    def score_parts(self, batch: Transitions) -> tuple[Tensor, Components]:
        """The bonus and the distance behind it."""
        encoded, valid = self._encoded(batch), batch.valid.flatten()
        candidates = encoded.flatten(0, 1)
        if self.memory is not None:
            remembered = self.memory.filled()
            candidates = torch.cat([candidates, remembered.to(candidates.dtype)])
            valid = torch.cat([valid, valid.new_ones(remembered.shape[0])])
        distance, parts = self.entropy.score(encoded, batch.valid, candidates, allowed=valid, aligned=True)
        if self.moments is not None:
            deviation = self._merge(self.moments, distance, batch).var.sqrt()
            distance = distance / deviation.clamp_min(SMALLEST_DEVIATION).to(distance.dtype)
        return distance if self.cfg.variant == "official" else distance.log1p(), parts

    @torch.no_grad()
    def observe(self, batch: Transitions, parts: Components) -> None:
        """Remember the valid states, and commit the distances whose deviation `score_parts` used."""
        if self.moments is not None:
            self.moments.commit(self._merge(self.moments, parts["distance"], batch))
        if self.memory is not None:
            self.memory.add(self._encoded(batch)[batch.valid])

    @staticmethod
    def _merge(moments: RunningMoments, distance: Tensor, batch: Transitions) -> Moments:
        """The running moments with this batch's distances; the official code merges sample variances."""
        return moments.moments().merge(valid_moments(distance, batch.valid, unbiased=True))

    def _encoded(self, batch: Transitions) -> Tensor:  # (T, N, D)
        encoded: Tensor = self.features(getattr(batch, self.cfg.neighbours_of))
        disturbed: Tensor = self.noise(encoded if self.cfg.variant == "a2c" else encoded.tanh())
        return disturbed
