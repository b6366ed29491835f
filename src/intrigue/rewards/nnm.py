"""Nuclear norm maximization (Chen et al. 2022, arXiv:2205.10484, section 3.2 and Algorithm 1).

Z stacks n encodings of m dimensions as rows:

    source="ensemble"   Z[k] = f_k(φ(s), a): n trained models' predictions of the next encoding
    source="knn"        Z = the state's own encoding and its n − 1 nearest, in batch or memory

    form="ratio"        ‖Z‖_* / (‖Z‖_F √max(m, n))             the paper's bonus
    form="floor"        (‖Z‖_*/‖Z‖_F − 1) / (√min(m, n) − 1)   its constant floor taken off, in [0, 1]
    form="centered"     ‖Z − c‖_* / √m                         ours: c the mean row, or (knn) the state

    φ: `features` (see intrigue.nn.encoders).  f_k: `models`, trained.  ‖.‖_*: sum of singular values.

`nnm` is the paper's ratio; `nnmc` is this file with form="centered", which we recommend for exploring.

Differs from the paper: it leaves n, the encoder and the neighbours open; every choice and its reason is in
docs/rewards.md. The kNN form scores the state reached, where URLB's APT scores the state left (`neighbours_of="obs"`).
`encoder="trunk"` is URLB's `icm_apt` trunk itself, losses included, as `apt` has it; `encoder="icm"` only ends as that
trunk does, with the layers and losses of the other encoders.
`features="layernorm"` fixes the length of an encoding, without which the ratio pays for short encodings;
`features="raw"` is the literal reading. Members differ by their initialisation and by dropping each sample from each
member's loss with probability 0.2, as the Disagreement code does.
Cost: ensemble, one encoder pass and one batched n-model pass per score; knn, one encoder pass and a chunked search.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, final

import torch
from torch import Tensor

from intrigue.fields import NonNegativeInt, PositiveFraction, PositiveInt
from intrigue.nn.encoders import StateFeatures
from intrigue.nn.forward_models import ForwardModels
from intrigue.nn.knn import RingMemory, nearest_rows
from intrigue.nuclear import Center, Gathered, nuclear_floor, nuclear_norm, nuclear_score
from intrigue.rewards.base import IntrinsicReward, Traits
from intrigue.rewards.registry import register_reward
from intrigue.rng import Rng
from intrigue.spaces import Spaces
from intrigue.types import Components, Transitions

CITATION = """@article{chen2022nnm,
  title   = {Nuclear Norm Maximization Based Curiosity-Driven Learning},
  author  = {Chen, Chao and Gao, Zijian and Xu, Kele and Yang, Sen and Li, Yiying and Ding, Bo
             and Feng, Dawei and Wang, Huaimin},
  journal = {arXiv preprint arXiv:2205.10484},
  year    = {2022}
}"""


@dataclass(frozen=True)
class NuclearNormConfig:
    """Settings of the nuclear-norm bonus."""

    source: Literal["ensemble", "knn"] = "ensemble"  # where the rows of Z come from; the paper names both
    form: Literal["ratio", "floor", "centered"] = "ratio"  # ratio is the paper's
    features: Literal["layernorm", "raw", "unit"] = "layernorm"  # length of an encoding; raw is the literal reading
    encoder: Literal["random", "idf", "icm", "trunk", "identity"] = "random"  # φ; random is Disagreement's
    n: PositiveInt = 5  # rows of Z: Disagreement's ensemble size, and the paper's toy figure
    feature_dim: PositiveInt = 512  # m: Disagreement's feature size
    hidden: PositiveInt = 512  # width of every dense layer, as Disagreement
    blocks: NonNegativeInt = 4  # residual blocks of a model, as Disagreement; 0 is a plain two-layer model
    keep: PositiveFraction = 0.8  # share of samples each member learns from, as Disagreement
    neighbours_of: Literal["obs", "next_obs"] = "next_obs"  # knn: novelty of the state reached, or of the state left
    memory: NonNegativeInt = 0  # knn: rows remembered from earlier batches; 0 searches in the batch
    memory_stride: PositiveInt = 4  # knn: one in how many steps of each environment is remembered


@register_reward("nnmc", config=NuclearNormConfig, defaults={"form": "centered"})
@register_reward("nnm", config=NuclearNormConfig)
@final
class NuclearNorm(IntrinsicReward):
    """Spread of n encodings, measured by the sum of their singular values."""

    traits = Traits(vmappable=True, cuda_graph_safe=True)

    def __init__(self, cfg: NuclearNormConfig, spaces: Spaces) -> None:
        super().__init__(cfg, spaces)
        self.cfg = cfg
        self.features = StateFeatures(cfg.encoder, cfg.features, spaces, cfg.feature_dim, cfg.hidden)
        width = self.features.width
        # knn with a frozen encoder has nothing to predict; the ICM trunk needs one forward model to learn from.
        members = {"ensemble": cfg.n, "knn": 1 if cfg.encoder == "icm" else 0}[cfg.source]
        self.models = None
        if members:
            sizes = (members, self.features, spaces.action.width, self.noise)
            self.models = ForwardModels(*sizes, hidden=cfg.hidden, blocks=cfg.blocks, keep=cfg.keep)
        self.memory = RingMemory(cfg.memory, width) if cfg.source == "knn" and cfg.memory else None
        if self.memory is not None:  # the host has to know how full it is
            self.traits = replace(self.traits, vmappable=False)

    @property
    def frozen_encoder(self) -> StateFeatures | None:
        return self.features if self.models is not None and self.features.kind == "random" else None

    def score(self, batch: Transitions) -> Tensor:
        """The bonus of each transition, (T, N)."""
        rows: Tensor | Gathered
        center: Center
        if self.cfg.source == "ensemble":
            assert self.models is not None
            rows, center = self.models(self.features.encode_obs(batch), batch.action), "mean"  # (T, N, n, m)
        else:
            reached = self.noise(self.features(getattr(batch, self.cfg.neighbours_of)))
            rows, center = self._neighbourhood(reached, batch.valid), "first"
        # Curiosity looks for NaN in every bonus; looking here as well would make the device wait twice.
        match self.cfg.form:
            case "ratio":
                bonus = nuclear_score(rows, on_nonfinite="propagate")
            case "floor":
                bonus = nuclear_floor(rows, on_nonfinite="propagate")
            case "centered":
                norm = nuclear_norm(rows, center, on_nonfinite="propagate")
                bonus = norm / math.sqrt(self.features.width)
        return bonus.reshape(batch.reward.shape)

    def loss(self, batch: Transitions, rng: Rng) -> Tensor:
        """The models' loss on their shares of the samples and the encoder's own; zero where neither learns."""
        if self.models is not None:
            return self.models.loss(batch, rng)
        return self.features.encoder_loss(batch, self.noise)

    @torch.no_grad()
    def observe(self, batch: Transitions, parts: Components) -> None:
        """Remember every `memory_stride`-th valid state."""
        if self.memory is not None:
            encoded = self.noise(self.features(getattr(batch, self.cfg.neighbours_of)))  # (T, N, m)
            time, envs = (torch.arange(size, device=encoded.device) for size in encoded.shape[:2])
            # Diagonals of (T, N), so that every environment is remembered whatever the stride.
            diagonal = (time.unsqueeze(-1) + envs) % self.cfg.memory_stride == 0
            self.memory.add(encoded[diagonal & batch.valid])

    def _neighbourhood(self, encoded: Tensor, valid: Tensor) -> Gathered:
        """Each state's encoding followed by its n − 1 nearest, or as many as there are; invalid rows do not count."""
        query = encoded.flatten(0, -2)  # (B, m)
        others = self.memory.filled() if self.memory is not None else query
        in_batch = others.shape[0] < self.cfg.n - 1 or self.memory is None
        others = query if in_batch else others
        k = min(self.cfg.n - 1, others.shape[0] - int(in_batch))
        allowed = valid.flatten() if in_batch else None
        return Gathered(query, others, nearest_rows(query, others, k, skip_self=in_batch, allowed=allowed))
