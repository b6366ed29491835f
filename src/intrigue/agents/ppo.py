"""Proximal policy optimization (Schulman et al. 2017, arXiv:1707.06347, eq. 7 and 9), with one value head per stream.

    ρ = π(a|s) / π_old(a|s)
    L = −E[min(ρ A, clip(ρ, 1−ε, 1+ε) A)] + c_v Σ_h ½(V_h(s) − R_h)² − c_e H(π(·|s))
    A = Σ_h w_h A_h,   A_h: generalised advantage of stream h,   R_h = A_h + V_h(s)

Streams: "total" alone, or "extrinsic" and "intrinsic", each with its own discount and its own view of episode ends
(RND, arXiv:1810.12894, section 2.3). `ignore_done` is the infinite horizon of large-scale curiosity: returns flow on
through resets.

Skills: V(s, z) is the value of keeping z, as in URLB, whose critic sees one skill at both ends of a transition. Where a
new skill begins, the chain is cut as by a time limit and the value of the old skill stands for what would have come;
`ignore_done` flows on through skills as through resets.

Differs from the paper: advantages are normalised over the rollout, minibatches are whole environments, both as in the
Disagreement code; no value clipping.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Generator, Tensor, nn

from intrigue.agents.base import Agent
from intrigue.agents.heads import ActionHead
from intrigue.agents.registry import register_agent
from intrigue.fields import (
    Discount,
    FiniteFloat,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)
from intrigue.networks import ConvTrunk, init_orthogonal, mlp
from intrigue.normalize import RunningMoments
from intrigue.optim import descend, load_optimizer_state, optimizer_state
from intrigue.returns import gae
from intrigue.spaces import Spaces
from intrigue.state import State
from intrigue.types import Acted, Extras, Metrics, Stream, Transitions

REFUSAL = (
    "PPO's loss is not finite; its optimiser was not stepped. Lower --agent.learning-rate, set "
    "--agent.normalize-obs true, or look at the rewards."
)


@dataclass(frozen=True)
class PPOConfig:
    """Settings of PPO; defaults as CleanRL's Atari and classic-control scripts unless said."""

    rollout_steps: PositiveInt = 128  # CleanRL, Disagreement
    epochs: PositiveInt = 4  # CleanRL; Disagreement 3
    minibatches: PositiveInt = 4  # CleanRL; Disagreement 8; each is a set of whole environments
    learning_rate: PositiveFloat = 2.5e-4  # CleanRL; Disagreement 1e-4
    anneal_steps: NonNegativeInt = 0  # agent steps over which the learning rate falls to 0; 0 keeps it
    discount: Discount = 0.99  # of the total or extrinsic stream
    int_discount: Discount = 0.99  # of the intrinsic stream when there are two: RND
    gae_lambda: Fraction = 0.95  # CleanRL, Disagreement, RND
    ignore_done: bool = False  # total or extrinsic returns flow through episode ends: Disagreement true
    int_ignore_done: bool = True  # the same for the intrinsic stream: RND true
    clip: PositiveFloat = 0.2  # ε: CleanRL; Disagreement and RND 0.1
    entropy_coef: NonNegativeFloat = 0.01  # CleanRL; Disagreement and RND 0.001
    value_coef: NonNegativeFloat = 0.5  # CleanRL, Disagreement
    max_grad_norm: NonNegativeFloat = 0.5  # CleanRL; 0 is off, as Disagreement
    normalize_advantage: bool = True  # CleanRL, Disagreement; RND false
    normalize_obs: bool = False  # running moments of the policy's input; helps unscaled vectors
    trunk: Literal["nature", "dis"] = "nature"  # pixels: ReLU orthogonal, or Disagreement's leaky Glorot trunk
    hidden: PositiveInt = 128  # vectors: width of two tanh layers, policy and value apart; ours
    features: PositiveInt = 512  # pixels: width after the convolutions: Nature
    log_std: FiniteFloat = 0.0  # continuous: initial log standard deviation: CleanRL

    def problems(self, num_envs: int) -> list[str]:
        """Rules that need the number of environments."""
        if self.minibatches > num_envs:
            return [
                f"minibatches: {self.minibatches} sets of whole environments cannot be made of {num_envs}. "
                f"Use --agent.minibatches {num_envs} or less, or more environments (--pool.num-envs)."
            ]
        return []


@register_agent("ppo", config=PPOConfig)
@final
class PPO(Agent):
    """Clipped policy gradient over rollouts."""

    takes_skills = True

    def __init__(self, cfg: PPOConfig, spaces: Spaces, streams: Sequence[str]) -> None:
        super().__init__(cfg, spaces, streams)
        self.cfg, self.stream_names = cfg, tuple(streams)
        self.rollout_steps = cfg.rollout_steps
        self.pixels = spaces.obs.kind == "pixels"
        self.policy_body: nn.Module
        self.value_body: nn.Module
        if self.pixels:
            trunk = nn.Sequential(ConvTrunk(spaces.obs.shape, cfg.features, cfg.trunk), nn.ReLU())
            self.policy_body = self.value_body = trunk
            # A skill joins an image where the image has become features.
            width = cfg.features + spaces.skill
        else:
            width = cfg.hidden
            sizes = (spaces.obs.size + spaces.skill, width, width)
            self.policy_body, self.value_body = (
                nn.Sequential(init_orthogonal(mlp(sizes), math.sqrt(2)), nn.Tanh()) for _ in range(2)
            )
        self.head = ActionHead(spaces.action, width, gain=0.01, log_std=cfg.log_std)
        self.value_head = init_orthogonal(nn.Linear(width, len(self.stream_names)), 1.0)
        self.obs_moments = RunningMoments(spaces.obs.shape)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=cfg.learning_rate, eps=1e-5)  # eps: CleanRL

    @torch.no_grad()
    def act(self, obs: Tensor, skill: Tensor, *, explore: bool, rng: Generator) -> Acted:
        """Sampled (or most likely) actions, with their log-probabilities and the state's values."""
        parameters, value = self._forward(obs, skill)
        sample = self.head.sample(parameters, explore=explore, rng=rng)
        noted = {"sample": sample, "log_prob": self.head.log_prob(parameters, sample), "value": value}
        return Acted(self.head.action(sample), noted)

    def update(
        self, batch: Transitions, streams: Sequence[Stream], extras: Extras, *, rng: Generator, step: int
    ) -> Metrics:
        """`epochs` passes of clipped steps over minibatches of whole environments."""
        rate = self._learning_rate(step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        advantage, target = self.advantages(batch, streams, extras)
        parts = []
        for _ in range(self.cfg.epochs):
            order = torch.randperm(batch.reward.shape[1], generator=rng, device=rng.device)
            for envs in order.chunk(self.cfg.minibatches):
                parts.append(self._minibatch(batch, extras, advantage, target, envs))
        if self.cfg.normalize_obs:
            self.obs_moments.observe(batch.obs[batch.valid])
        names = ("policy_loss", "value_loss", "entropy", "approx_kl", "clipfrac")
        means = torch.stack(parts).mean(0).tolist()
        return {**{f"losses/{name}": value for name, value in zip(names, means, strict=True)},
                "charts/learning_rate": rate}  # fmt: skip

    @torch.no_grad()
    def advantages(self, batch: Transitions, streams: Sequence[Stream], extras: Extras) -> tuple[Tensor, Tensor]:
        """The policy's advantage (T, N) and every head's target (T, N, H), from the rewards given."""
        value = extras["value"]  # (T, N, H)
        follow = torch.cat([value[1:], self._value(extras["last_obs"], extras["last_skill"]).unsqueeze(0)])
        successor = follow.clone()
        switched = (torch.cat([batch.skill[1:], extras["last_skill"].unsqueeze(0)]) != batch.skill).any(-1)
        last = (torch.arange(value.shape[0], device=value.device) == value.shape[0] - 1).unsqueeze(-1)
        ended = batch.ended | switched | last
        successor[ended] = self._value(batch.next_obs[ended], batch.skill[ended])
        mixed, targets = torch.zeros_like(batch.reward), []
        for head, stream in enumerate(streams):
            endless = self.cfg.int_ignore_done if stream.name == "intrinsic" else self.cfg.ignore_done
            never = torch.zeros_like(batch.terminated)
            advantage = gae(
                stream.reward,
                value[..., head],
                (follow if endless else successor)[..., head],
                never if endless else batch.terminated,
                ~batch.valid if endless else batch.truncated | switched | ~batch.valid,
                discount=self.cfg.int_discount if stream.name == "intrinsic" else self.cfg.discount,
                gae_lambda=self.cfg.gae_lambda,
            )
            targets.append(advantage + value[..., head])
            mixed = mixed + stream.weight * advantage
        if self.cfg.normalize_advantage:
            counted = mixed[batch.valid]
            mixed = (mixed - counted.mean()) / (counted.std(unbiased=False) + 1e-8)
        return mixed, torch.stack(targets, -1)

    def _minibatch(self, batch: Transitions, extras: Extras, advantage: Tensor, target: Tensor, envs: Tensor) -> Tensor:
        rows = batch.valid[:, envs]
        gain = advantage[:, envs][rows]
        parameters, value = self._forward(batch.obs[:, envs][rows], batch.skill[:, envs][rows])
        log_ratio = self.head.log_prob(parameters, extras["sample"][:, envs][rows]) - extras["log_prob"][:, envs][rows]
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - self.cfg.clip, 1 + self.cfg.clip)
        policy_loss = -torch.minimum(ratio * gain, clipped * gain).mean()
        value_loss = 0.5 * (value - target[:, envs][rows]).square().mean(0).sum()
        entropy = self.head.entropy(parameters).mean()
        loss = policy_loss + self.cfg.value_coef * value_loss - self.cfg.entropy_coef * entropy
        descend(self.optimizer, loss, REFUSAL, self.cfg.max_grad_norm)
        with torch.no_grad():
            kl = (ratio - 1 - log_ratio).mean()  # the low-variance estimate of Schulman's note on approximating KL
            outside = ((ratio - 1).abs() > self.cfg.clip).float().mean()
            return torch.stack([policy_loss, value_loss, entropy, kl, outside])

    def _forward(self, obs: Tensor, skill: Tensor) -> tuple[Tensor, Tensor]:
        features = self._features(self.policy_body, obs, skill)
        value_features = features if self.pixels else self._features(self.value_body, obs, skill)
        return self.head(features), self.value_head(value_features)

    def _value(self, obs: Tensor, skill: Tensor) -> Tensor:
        value: Tensor = self.value_head(self._features(self.value_body, obs, skill))
        return value

    def _features(self, body: nn.Module, obs: Tensor, skill: Tensor) -> Tensor:
        seen = self._input(obs)
        if self.pixels:
            return torch.cat([body(seen), skill], -1)
        features: Tensor = body(torch.cat([seen, skill], -1))
        return features

    def _input(self, obs: Tensor) -> Tensor:
        if self.cfg.normalize_obs:
            return (obs.float() - self.obs_moments.mean.float()) / self.obs_moments.std().float()
        return obs.float() / 255 if self.pixels else obs

    def _learning_rate(self, step: int) -> float:
        if self.cfg.anneal_steps == 0:
            return self.cfg.learning_rate
        return self.cfg.learning_rate * max(0.0, 1 - step / self.cfg.anneal_steps)

    def train_state(self) -> State:
        """Networks, input moments, optimiser."""
        return {
            "modules": {name: value.detach().clone() for name, value in self.state_dict().items()},
            "optimizer": optimizer_state(self.optimizer),
        }

    def load_train_state(self, state: State) -> None:
        """Put back what `train_state` gave."""
        self.load_state_dict(state["modules"])
        load_optimizer_state(self.optimizer, state["optimizer"])
