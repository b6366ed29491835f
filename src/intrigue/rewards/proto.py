"""Prototypical representations (ProtoRL: Yarats et al. 2021, arXiv:2102.11271, section 4).

    z    = f(s') / ‖f(s')‖                       encoding of the state reached
    r    = ‖z − z_k‖₂                            z_k: its k-th nearest in a queue of past encodings
    loss = −mean Σ_p q_p log softmax_p(c_p · u / τ),     u = h(f(s)) / ‖h(f(s))‖,     q = Sinkhorn(c · z̄ / τ)

    f: `trunk` and `predictor`.  h: `projector`.  c: `prototypes`, rows of length 1.  z̄: the encoding of s' by slowly
    following copies (`target_trunk`, `target_predictor`).  Sinkhorn: every prototype is given an equal share of the
    batch.  Each batch, every prototype draws one of its states, with probability softmax over the batch of c_p · z,
    into the `queue`, and the oldest leave.

Prototypes spread over what has been visited, so the queue covers it evenly, and what is far from the queue is new.

Variants:

    urlb       the queue holds the candidates of the last `queue` / `prototypes` batches
    urlb-2021  its pointer never moves: one batch's candidates, and zero rows that keep r at 1 or below (the benchmark
               before 2021-12-21, from which its published numbers come)

Differs from the paper: any agent, states as well as pixels; no random shifts of pixels. Whether the paper has a
temperature in the candidates' softmax is unverified; neither code has one.
Differs from the official code: denisyarats/proto computes what URLB does, with `predictor` and `projector` under each
other's name. Both enqueue and score after learning from the batch; here the candidates are scored as the models were
and enqueued as they have become. The copies follow, and the prototypes are made unit length again, once per batch
(URLB: per update, which is the same with one minibatch and one epoch). Of a batch of fewer than two states for each
prototype, only half as many prototypes draw as there are states, in turn: were they all to draw, every state would find
itself in the queue and nothing would be new. Under `urlb` rows not yet written are no neighbours; both codes count them
as zeros, for the first three batches. The convolutions are Nature's, with 512 features.
Cost: one encoder pass, a P×B softmax and a search in the queue per score; one more encoder pass over the candidates
when observing; per learning epoch an encoder pass with gradient and one without; memory two encoders and the queue.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from intrigue.fields import PositiveFloat, PositiveFraction, PositiveInt
from intrigue.nn.counter_rng import CounterRng
from intrigue.nn.networks import StateTrunk, freeze, init_orthogonal, mlp
from intrigue.nn.particle_entropy import ParticleEntropy
from intrigue.rewards.base import IntrinsicReward, Traits
from intrigue.rewards.registry import register_reward
from intrigue.rng import Rng
from intrigue.spaces import Spaces
from intrigue.types import Components, Transitions

CITATION = """@inproceedings{yarats2021proto,
  title     = {Reinforcement Learning with Prototypical Representations},
  author    = {Yarats, Denis and Fergus, Rob and Lazaric, Alessandro and Pinto, Lerrel},
  booktitle = {International Conference on Machine Learning},
  year      = {2021},
  note      = {arXiv:2102.11271}
}"""

# Stands for minus infinity, and leaves a softmax over nothing but such entries finite.
IMPOSSIBLE = -1e4


@dataclass(frozen=True)
class ProtoConfig:
    """Settings of prototypical representations."""

    variant: Literal["urlb", "urlb-2021"] = "urlb"  # whether the queue's pointer moves
    feature_dim: PositiveInt = 128  # of an encoding: URLB pred_dim, official proj_dim
    hidden: PositiveInt = 512  # of the projector: URLB proj_dim, official pred_dim; and features of pixels
    prototypes: PositiveInt = 512  # both codes
    queue: PositiveInt = 2048  # rows, no fewer than prototypes: both codes
    k: PositiveInt = 3  # which nearest row of the queue: both codes
    temperature: PositiveFloat = 0.1  # of the loss: both codes
    rounds: PositiveInt = 3  # of Sinkhorn: both codes
    target_rate: PositiveFraction = 0.05  # how fast the copies follow: both codes


@register_reward("proto", config=ProtoConfig)
@final
class Proto(IntrinsicReward):
    """Distance to a queue of states that prototypes chose."""

    traits = Traits(vmappable=True)
    finetune_copies_critic = True  # URLB proto.py init_from
    queue: Tensor
    written: Tensor

    def __init__(self, cfg: ProtoConfig, spaces: Spaces) -> None:
        super().__init__(cfg, spaces)
        self.cfg = cfg
        self.trunk = StateTrunk(spaces.obs, cfg.hidden)
        self.predictor = init_orthogonal(nn.Linear(self.trunk.width, cfg.feature_dim), 1.0)
        self.projector = init_orthogonal(mlp((cfg.feature_dim, cfg.hidden, cfg.feature_dim), nn.ReLU), 1.0)
        directions = nn.init.orthogonal_(torch.empty(cfg.prototypes, cfg.feature_dim))
        self.prototypes = nn.Parameter(functional.normalize(directions, dim=-1))
        self.target_trunk, self.target_predictor = (freeze(copy.deepcopy(m)) for m in (self.trunk, self.predictor))
        self.register_buffer("queue", torch.zeros(cfg.queue, cfg.feature_dim))
        self.register_buffer("written", torch.zeros((), dtype=torch.int64))
        self.draws = CounterRng()
        self.entropy = ParticleEntropy(cfg.k, average=False, log=False)

    @classmethod
    def refusal(cls, cfg: ProtoConfig, spaces: Spaces) -> str | None:
        """The queue must hold what the prototypes draw from one batch."""
        del spaces
        if cfg.queue >= cfg.prototypes:
            return None
        return (
            f"a queue of {cfg.queue} rows cannot hold the draws of {cfg.prototypes} prototypes; "
            f"use more rows, for example --reward.queue {4 * cfg.prototypes}."
        )

    def score(self, batch: Transitions) -> Tensor:
        """Distance to the k-th nearest row of the queue with this batch's candidates in it, (T, N)."""
        return self.score_parts(batch)[0]

    def score_parts(self, batch: Transitions) -> tuple[Tensor, Components]:
        """The bonus, and how many prototypes chose each state."""
        encoded = self._encode(batch.next_obs)
        rows = encoded.flatten(0, 1)  # (B, D)
        chosen = self._choose(rows, batch.valid.flatten())  # (B,)
        queue, written = self._enqueued(rows[self._repeated(chosen)])
        known = torch.arange(self.cfg.queue, device=rows.device) < written
        allowed = known if self.cfg.variant == "urlb" else None
        raw, _ = self.entropy.score(encoded, batch.valid, queue, allowed=allowed)
        return raw, {"chosen": chosen.unflatten(0, batch.valid.shape).to(raw.dtype)}

    def loss(self, batch: Transitions, rng: Rng) -> Tensor:
        """Cross-entropy of the copies' balanced assignment of s' and the assignment predicted from s."""
        # The gradient is the one for a row as it is, not for its direction: both codes normalise between steps.
        unit = self._unit_prototypes() + (self.prototypes - self.prototypes.detach())
        ahead = self.projector(self.noise(self.predictor(self.trunk(batch.obs)))).flatten(0, -2)
        predicted = functional.normalize(ahead, dim=-1) @ unit.mT / self.cfg.temperature
        with torch.no_grad():
            target = self.noise(self.target_predictor(self.target_trunk(batch.next_obs))).flatten(0, -2)
            wanted = functional.normalize(target, dim=-1) @ unit.mT / self.cfg.temperature
            share = sinkhorn(wanted, self.cfg.rounds)
        loss: Tensor = -(share * predicted.log_softmax(-1)).sum(-1).mean()
        return loss

    @torch.no_grad()
    def observe(self, batch: Transitions, parts: Components) -> None:
        """Enqueue the chosen states as they are encoded now; let the copies follow; make prototypes unit length."""
        chosen = self._repeated(parts["chosen"].flatten().long())
        queue, written = self._enqueued(self._encode(batch.next_obs.flatten(0, 1)[chosen]))
        any_valid = batch.valid.any()
        self.queue.copy_(torch.where(any_valid, queue, self.queue))
        self.written.copy_(torch.where(any_valid, written, self.written))
        self.draws.advance()
        for copied, own in ((self.target_trunk, self.trunk), (self.target_predictor, self.predictor)):
            for slow, fast in zip(copied.parameters(), own.parameters(), strict=True):
                slow.copy_(slow.lerp(fast, self.cfg.target_rate))  # torch cannot map lerp_ over seeds
        self.prototypes.copy_(self._unit_prototypes())

    def _encode(self, obs: Tensor) -> Tensor:
        """Unit encodings (..., D)."""
        return functional.normalize(self.noise(self.predictor(self.trunk(obs))), dim=-1)

    def _unit_prototypes(self) -> Tensor:
        return functional.normalize(self.prototypes.detach(), dim=-1)

    def _draw_count(self, states: int) -> int:
        """How many prototypes draw from so many states."""
        return min(self.cfg.prototypes, max(1, states // 2))

    def _choose(self, encoded: Tensor, valid: Tensor) -> Tensor:
        """How many prototypes draw each of the rows (B, D), (B,); rows that are not valid are drawn by none."""
        drawing = self._draw_count(encoded.shape[0])
        turn = (self.draws.count * drawing + torch.arange(drawing, device=encoded.device)) % self.cfg.prototypes
        # Rows are put in an order of their own, so that which is drawn does not depend on its position in the batch.
        order = encoded[:, 0].argsort()
        likeness = (self._unit_prototypes()[turn] @ encoded[order].mT).masked_fill(~valid[order], IMPOSSIBLE)  # (P, B)
        reached = likeness.softmax(-1).cumsum(-1)
        level = self.draws.uniform(drawing).to(reached.dtype).unsqueeze(-1) * reached[:, -1:]
        place = torch.searchsorted(reached, level).squeeze(-1).clamp_max(len(order) - 1)
        return torch.zeros_like(order).scatter_add(0, order[place], torch.ones_like(place))

    def _repeated(self, chosen: Tensor) -> Tensor:
        """The rows that counts (B,) stand for, each as often as it was chosen."""
        nth = torch.ones_like(chosen[: self._draw_count(chosen.shape[0])]).cumsum(0)  # 1 … P
        # The n-th draw is of the first row at which n have been drawn.
        return torch.searchsorted(chosen.cumsum(0), nth)

    def _enqueued(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The queue with rows (P, D) over its oldest, and how many have then been written."""
        first = self.written if self.cfg.variant == "urlb" else 0
        slots = (first + torch.arange(rows.shape[0], device=rows.device)) % self.cfg.queue
        return self.queue.to(rows.dtype).index_copy(0, slots, rows), self.written + rows.shape[0]


def sinkhorn(scores: Tensor, rounds: int) -> Tensor:
    """Shares (B, P), each row summing to 1, in which every prototype has nearly the same total (Cuturi 2013).

    Rows and columns of exp(scores) are scaled in turn; in logarithms, where no temperature underflows.
    """
    states, prototypes = scores.shape
    for _ in range(rounds):
        scores = scores - scores.logsumexp(0, keepdim=True) - math.log(prototypes)
        scores = scores - scores.logsumexp(1, keepdim=True) - math.log(states)
    return scores.softmax(1)
