"""Proximal policy optimization (Schulman et al. 2017, arXiv:1707.06347, eq. 7 and 9), with one value head per stream.

    ρ = π(a|s) / π_old(a|s)
    L = −E[min(ρ A, clip(ρ, 1−ε, 1+ε) A)] + c_v Σ_h ½(V_h(s) − R_h)² − c_e H(π(·|s))
    A = Σ_h w_h A_h,   A_h: generalised advantage of stream h,   R_h = A_h + V_h(s)

Streams: "total" alone, or "extrinsic" and "intrinsic", each with its own discount and treatment of episode ends
(RND, arXiv:1810.12894, section 2.3). `ignore_done` is the infinite horizon of large-scale curiosity: returns continue
across resets.

Skills: V(s, z) is the value of keeping z, as in URLB, whose critic reads one skill at both ends of a transition. A
change of skill truncates, as a time limit does: returns bootstrap from the value under the old skill. With
`ignore_done` they continue across changes of skill as across resets.

Differs from the paper: advantages are normalised over the rollout, minibatches are whole environments, both as in the
Disagreement code; no value clipping.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Generator, Tensor

from intrigue.agents.actor_critic import ActorCritic
from intrigue.agents.base import Agent
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
from intrigue.nn.returns import gae
from intrigue.ops.execution import CudaGraph, Mode, uses_cuda_graph
from intrigue.ops.optimizer_step import LossStep, load_optimizer_state, optimizer_state
from intrigue.ops.precision import fast_float32
from intrigue.spaces import Spaces
from intrigue.state import State
from intrigue.types import Acted, Extras, Metrics, Stream, Transitions

LOSS_NOT_FINITE = (
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
    value_coef: NonNegativeFloat = 0.5  # c_v, of half the squared error: CleanRL; Disagreement 1.0
    max_grad_norm: NonNegativeFloat = 0.5  # CleanRL; 0 is off, as Disagreement
    normalize_advantage: bool = True  # CleanRL, Disagreement; RND false
    advantage_eps: PositiveFloat = 1e-8  # added to the spread of advantages: CleanRL; Disagreement 1e-7
    adam_eps: PositiveFloat = 1e-5  # Adam's ε: CleanRL; Disagreement 1e-8
    normalize_obs: bool = False  # the policy's input by its moments; helps unscaled vectors; Disagreement true
    obs_moments: Literal["running", "warm-up"] = "running"  # warm-up: fixed after the random steps, as Disagreement
    obs_norm: Literal["elementwise", "scalar"] = "elementwise"  # scalar: one spread for all elements, Disagreement
    trunk: Literal["nature", "dis"] = "nature"  # pixels: the Nature network, or Disagreement's policy network
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
        self.nets = ActorCritic(
            spaces,
            len(self.stream_names),
            style=cfg.trunk,
            hidden=cfg.hidden,
            features=cfg.features,
            log_std=cfg.log_std,
            input_norm=cfg.obs_norm if cfg.normalize_obs else "none",
        )
        self._act_graphs: dict[int, CudaGraph] = {}
        self.execute("plain")

    def execute(self, mode: Mode) -> None:
        """Run optimiser steps, and on a GPU also acting, in this execution mode."""
        self.mode: Mode = mode
        self._step = LossStep(
            self._loss_of,
            self.parameters(),
            learning_rate=self.cfg.learning_rate,
            eps=self.cfg.adam_eps,
            error_text=LOSS_NOT_FINITE,
            mode=mode,
            max_grad_norm=self.cfg.max_grad_norm,
            fused=self.nets.pixels,
        )

    def warm_up(self, obs: Tensor) -> None:
        """Update the input moments with observations of the random steps before training."""
        if self.cfg.normalize_obs:
            self.nets.obs_moments.observe(obs)

    def act(self, obs: Tensor, skill: Tensor, *, explore: bool, rng: Generator) -> Acted:
        """Sampled (or most likely) actions, with their log-probabilities and the state's values."""
        if uses_cuda_graph(self.mode, obs.device) and explore:
            if id(rng) not in self._act_graphs:
                self._act_graphs[id(rng)] = CudaGraph(
                    lambda obs, skill: self._sample_action(obs, skill, True, rng), (rng,)
                )
            outputs = tuple(each.clone() for each in self._act_graphs[id(rng)](obs, skill))
        else:
            outputs = self._sample_action(obs, skill, explore, rng)
        action, sample, log_prob, value = outputs
        return Acted(action, {"sample": sample, "log_prob": log_prob, "value": value})

    @torch.no_grad()
    def _sample_action(self, obs: Tensor, skill: Tensor, explore: bool, rng: Generator) -> tuple[Tensor, ...]:
        head = self.nets.head
        with fast_float32():
            parameters, value = self.nets(obs, skill)
        sample = head.sample(parameters, explore=explore, rng=rng)
        return head.action(sample), sample, head.log_prob(parameters, sample), value

    def update(
        self, batch: Transitions, streams: Sequence[Stream], extras: Extras, *, rng: Generator, step: int
    ) -> Metrics:
        """`epochs` passes of clipped steps over minibatches of whole environments."""
        rate = self._learning_rate(step)
        self._step.set_learning_rate(rate)
        advantage, target = self.advantages(batch, streams, extras)
        # Convolutions on a CPU need channels-last input; converted once here, not in every minibatch.
        channels_last = self.nets.pixels and batch.obs.device.type == "cpu"
        obs = batch.obs.movedim(2, -1).contiguous() if channels_last else batch.obs
        fields = (obs, batch.skill, extras["sample"], extras["log_prob"], advantage, target)
        all_valid = bool(batch.valid.all())
        parts = []
        for _ in range(self.cfg.epochs):
            order = torch.randperm(batch.reward.shape[1], generator=rng, device=rng.device)
            for envs in order.tensor_split(self.cfg.minibatches):
                if not all_valid and not bool(batch.valid[:, envs].any()):
                    continue  # no transition of these environments is valid
                chosen = [each.index_select(1, envs) for each in fields]  # (T, n, ...)
                taken = [each.flatten(0, 1) if all_valid else each[batch.valid[:, envs]] for each in chosen]
                parts.append(self._step(taken[0].movedim(-1, 1) if channels_last else taken[0], *taken[1:]))
        self._step.check()
        if self.cfg.normalize_obs and self.cfg.obs_moments == "running":
            self.nets.obs_moments.observe(batch.obs[batch.valid])
        names = ("policy_loss", "value_loss", "entropy", "approx_kl", "clipfrac")
        means = torch.stack(parts).mean(0).tolist() if parts else [0.0] * len(names)
        return {**{f"losses/{name}": value for name, value in zip(names, means, strict=True)},
                "charts/learning_rate": rate}  # fmt: skip

    @torch.no_grad()
    def advantages(self, batch: Transitions, streams: Sequence[Stream], extras: Extras) -> tuple[Tensor, Tensor]:
        """The policy's advantage (T, N) and every head's target (T, N, H)."""
        value = extras["value"]  # (T, N, H)
        next_value = torch.cat([value[1:], self.nets.value(extras["last_obs"], extras["last_skill"]).unsqueeze(0)])
        successor = next_value.clone()
        switched = (torch.cat([batch.skill[1:], extras["last_skill"].unsqueeze(0)]) != batch.skill).any(-1)
        last = (torch.arange(value.shape[0], device=value.device) == value.shape[0] - 1).unsqueeze(-1)
        ended = batch.ended | switched | last
        successor[ended] = self.nets.value(batch.next_obs[ended], batch.skill[ended])
        mixed, targets = torch.zeros_like(batch.reward), []
        for head, stream in enumerate(streams):
            endless = self.cfg.int_ignore_done if stream.name == "intrinsic" else self.cfg.ignore_done
            never = torch.zeros_like(batch.terminated)
            advantage = gae(
                stream.reward,
                value[..., head],
                (next_value if endless else successor)[..., head],
                never if endless else batch.terminated,
                ~batch.valid if endless else batch.truncated | switched | ~batch.valid,
                discount=self.cfg.int_discount if stream.name == "intrinsic" else self.cfg.discount,
                gae_lambda=self.cfg.gae_lambda,
            )
            targets.append(advantage + value[..., head])
            mixed = mixed + stream.weight * advantage
        counted = mixed[batch.valid]
        if self.cfg.normalize_advantage and len(counted):
            mixed = (mixed - counted.mean()) / (counted.std(unbiased=False) + self.cfg.advantage_eps)
        return mixed, torch.stack(targets, -1)

    def _loss_of(
        self, obs: Tensor, skill: Tensor, sample: Tensor, old_log_prob: Tensor, advantage: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The loss of rows (B, ...), and the numbers to log."""
        parameters, value = self.nets(obs, skill)
        head = self.nets.head
        log_ratio = head.log_prob(parameters, sample) - old_log_prob
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - self.cfg.clip, 1 + self.cfg.clip)
        policy_loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
        value_loss = 0.5 * (value - target).square().mean(0).sum()
        entropy = head.entropy(parameters).mean()
        loss = policy_loss + self.cfg.value_coef * value_loss - self.cfg.entropy_coef * entropy
        with torch.no_grad():
            kl = (ratio - 1 - log_ratio).mean()  # the low-variance estimate of Schulman's note on approximating KL
            outside = ((ratio - 1).abs() > self.cfg.clip).float().mean()
            return loss, torch.stack([policy_loss, value_loss, entropy, kl, outside])

    def _learning_rate(self, step: int) -> float:
        if self.cfg.anneal_steps == 0:
            return self.cfg.learning_rate
        return self.cfg.learning_rate * max(0.0, 1 - step / self.cfg.anneal_steps)

    def train_state(self) -> State:
        """Networks, input moments, optimiser."""
        return {
            "modules": {name: value.detach().clone() for name, value in self.state_dict().items()},
            "optimizer": optimizer_state(self._step.optimizer),
        }

    def load_train_state(self, state: State) -> None:
        """Restore what `train_state` returned."""
        self.load_state_dict(state["modules"])
        load_optimizer_state(self._step.optimizer, state["optimizer"])
        self._step.invalidate_graph()
