"""Deep deterministic policy gradient as URLB has it (the Unsupervised RL Benchmark, Laskin et al. 2021).

    y    = r + γⁿ [not terminated] min(Q₁⁻, Q₂⁻)(s', a'),     a' = π(s') + clip(ε', ±c)
    L_Q  = mean (Q₁(s, a) − y)² + mean (Q₂(s, a) − y)²
    L_π  = −mean min(Q₁, Q₂)(s, π(s) + clip(ε, ±c))
    Q⁻   ← (1 − τ) Q⁻ + τ Q                                  after every update

ε, ε' ~ N(0, σ²). Actions lie within ±(1 − 1e-6) in units where the bounds are -1 and 1; gradients pass that clamp as if
it were not there. While acting the noise is not clipped; without exploration the action is π(s). (s, a, s') is a state,
its action, and the state n steps later; r is one bonus for the whole of it, or the discounted sum of the task's rewards
on the way. First the critic steps, then the actor on the critic as it has become, then the target follows.

The algorithm is Lillicrap et al. 2015 (arXiv:1509.02971) in the form of DrQ-v2 (Yarats et al. 2021, arXiv:2107.09645)
without a schedule for σ. URLB is arXiv:2110.15191; numbers are those of its code, rll-research/url_benchmark.

Differs from URLB: bounds other than ±1 are scaled to; a state that truly ends an episode has no value after it (URLB's
tasks have none). n-step windows end where the skill changes. Updates follow the environment's step where URLB's precede
it, so the first comes two steps later. A batch is drawn from all finished episodes, not from the quarter that one of
four loading processes holds. States only: URLB's convolutions for pixels are not here.
With `overlap` the exploring actor is the one before the last update (URLB's is never behind): what a step and an update
wait for of each other is gone, and a GPU learns from one while the environments take the next.
Cost: per update two passes of each network without gradient or less, and two with.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, final

import torch
from torch import Generator, Tensor
from torch.func import functional_call

from intrigue.agents.base import ReplayAgent
from intrigue.agents.ddpg_networks import Actor, TwinCritic
from intrigue.agents.registry import register_agent
from intrigue.fields import Discount, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveFraction, PositiveInt
from intrigue.nn.networks import freeze
from intrigue.ops.execution import Mode
from intrigue.ops.optimizer_step import LossStep, load_optimizer_state, optimizer_state
from intrigue.replay.plan import ReplayPlan
from intrigue.rng import Draws, normal
from intrigue.spaces import Spaces
from intrigue.state import State
from intrigue.types import Acted, Extras, Metrics, Stream, Transitions

EDGE = 1e-6  # URLB utils.py TruncatedNormal: actions stay this far from the bounds
REFUSAL = (
    "DDPG's loss is not finite; its optimiser was not stepped. Lower --agent.learning-rate, or look at the rewards."
)
NOTED = ("losses/critic_loss", "losses/q_values", "losses/actor_loss")


@dataclass(frozen=True)
class DDPGConfig:
    """Settings of DDPG; defaults as URLB's configurations for states."""

    capacity: PositiveInt = 1_000_000  # transitions in the replay: URLB replay_buffer_size
    replay_place: Literal["auto", "device", "host"] = "auto"  # where it is kept; auto: with the networks if it fits
    batch: PositiveInt = 1024  # windows in one update: URLB batch_size
    n_step: PositiveInt = 1  # n: URLB's script for pre-training; 3 for fine-tuning, and everywhere in its yaml files
    learning_starts: NonNegativeInt = 4_000  # random steps before the first update: URLB num_seed_frames
    train_every: PositiveInt = 2  # agent steps between two updates: URLB update_every_steps
    learning_rate: PositiveFloat = 1e-4  # Adam, actor and critic: URLB lr
    adam_eps: PositiveFloat = 1e-8  # torch's default, which URLB leaves
    discount: Discount = 0.99  # γ: URLB
    target_rate: PositiveFraction = 0.01  # τ: URLB critic_target_tau
    noise: NonNegativeFloat = 0.2  # σ: URLB stddev_schedule, constant
    noise_clip: PositiveFloat = 0.3  # c, while learning: URLB stddev_clip
    hidden: PositiveInt = 1024  # width of every layer: URLB hidden_dim
    overlap: bool = False  # act as the actor was one update ago, so that a GPU learns while environments step
    critic: Literal["plain", "successor"] = "plain"  # successor: Q is the skill times successor features, as URLB's APS
    rollout_steps: PositiveInt = 1_000  # steps of each environment between two log lines: an episode of URLB's walker

    def problems(self, num_envs: int) -> list[str]:
        """Rules between fields."""
        del num_envs
        if self.capacity < self.batch:
            return [f"capacity: {self.capacity} transitions are fewer than one batch. Use {self.batch} or more."]
        return []


class FlatBatch(NamedTuple):
    """What DDPG learns from, each (B, ...)."""

    obs: Tensor
    skill: Tensor
    action: Tensor
    """In units where the bounds are -1 and 1."""
    reward: Tensor
    discount: Tensor
    """Of the value of what follows; 0 where nothing does."""
    next_obs: Tensor
    valid: Tensor
    """1 where the row is a transition, else 0."""


@register_agent("ddpg", config=DDPGConfig)
@final
class DDPG(ReplayAgent):
    """An action for every state, moved to where two values agree that it is better."""

    feed = "replay"
    takes_skills = True
    two_streams = False

    middle: Tensor
    reach: Tensor

    def __init__(self, cfg: DDPGConfig, spaces: Spaces, streams: Sequence[str]) -> None:
        super().__init__(cfg, spaces, streams)
        self.cfg = cfg
        self.rollout_steps = cfg.rollout_steps
        self.plan = self.plan_of(cfg)
        state, action = spaces.obs.size + spaces.skill, spaces.action.width
        self.actor = Actor(state, action, cfg.hidden)
        self.critic = TwinCritic(state, action, cfg.hidden, spaces.skill if cfg.critic == "successor" else 0)
        self.target = freeze(copy.deepcopy(self.critic))
        self.behaviour = freeze(copy.deepcopy(self.actor)) if cfg.overlap else None
        """What explores under `overlap`: the actor before the last update."""
        low, high = torch.tensor(spaces.action.low), torch.tensor(spaces.action.high)
        self.register_buffer("middle", (high + low) / 2, persistent=False)
        self.register_buffer("reach", (high - low) / 2, persistent=False)
        self.execute("plain")

    @classmethod
    def plan_of(cls, cfg: DDPGConfig) -> ReplayPlan:
        """What these settings ask of a replay."""
        return ReplayPlan(
            capacity=cfg.capacity,
            batch=cfg.batch,
            learning_starts=cfg.learning_starts,
            train_every=cfg.train_every,
            discount=cfg.discount,
            steps=cfg.n_step,
            window="tuple",
            order="episodes",
            place=cfg.replay_place,
        )

    @classmethod
    def refusal(cls, cfg: DDPGConfig, spaces: Spaces) -> str | None:
        """The actor gives numbers between bounds, from numbers."""
        action = spaces.action
        if action.kind != "continuous":
            return f"{action.kind} actions are no numbers that could be moved a little. Use --agent ppo or dqn."
        if not all(map(math.isfinite, (*action.low, *action.high))):
            return "an action without bounds cannot be scaled to them. Use --agent ppo."
        if spaces.obs.kind == "pixels":
            return "it reads state vectors and takes no images. Use --agent ppo, or states."
        if cfg.critic == "successor" and not spaces.skill:
            return "critic 'successor' multiplies its features with a skill, and this reward has none. Use 'plain'."
        return None

    def execute(self, mode: Mode) -> None:
        """How the two losses are stepped down from now on."""
        cfg = self.cfg
        self.critic_step, self.actor_step = (
            LossStep(
                loss,
                network.parameters(),
                learning_rate=cfg.learning_rate,
                eps=cfg.adam_eps,
                error_text=REFUSAL,
                mode=mode,
                fused=True,  # on a CPU Adam's many passes over three million weights take as long as two of the layers
            )
            for loss, network in ((self.critic_loss, self.critic), (self.actor_loss, self.actor))
        )

    @torch.no_grad()
    def act(self, obs: Tensor, skill: Tensor, *, explore: bool, rng: Generator) -> Acted:
        """The actor's action, with noise while exploring."""
        if not explore:
            return Acted(self._scaled(self.actor(obs, skill)), {})
        return Acted(self.act_with_noise(obs, skill, rng), {})

    @torch.no_grad()
    def act_with_noise(self, obs: Tensor, skill: Tensor, rng: Generator | Draws) -> Tensor:
        """Actions (N, A) with noise."""
        return self.act_with_drawn_noise(obs, skill, normal((len(obs), len(self.middle)), rng, obs.dtype))

    @torch.no_grad()
    def act_with_drawn_noise(self, obs: Tensor, skill: Tensor, drawn: Tensor) -> Tensor:
        """Actions with this standard normal noise."""
        unit = (self.actor if self.behaviour is None else self.behaviour)(obs, skill)
        return self._scaled((unit + self.cfg.noise * drawn).clamp(EDGE - 1, 1 - EDGE))

    def _scaled(self, unit: Tensor) -> Tensor:
        """Actions as the environments take them."""
        low, high = self.middle - self.reach, self.middle + self.reach
        return torch.minimum(torch.maximum(self.middle + self.reach * unit, low), high)

    def update(
        self, batch: Transitions, streams: Sequence[Stream], extras: Extras, *, rng: Generator, step: int
    ) -> Metrics:
        """One step of critic, actor and target on tuples (1, B) and the rewards given for them."""
        (stream,) = streams
        rows = self.flatten_batch(batch, stream.weight * stream.reward, extras)
        noise = normal((2, *rows.action.shape), rng, rows.action.dtype)
        self.sync_behaviour_policy()
        noted = self.learn(*rows, noise)
        self.critic_step.check()
        self.actor_step.check()
        return dict(zip(NOTED, noted.tolist(), strict=True))

    def flatten_batch(self, batch: Transitions, reward: Tensor, extras: Extras) -> FlatBatch:
        """The tuples (1, B) as `learn` wants them."""
        obs, skill = batch.obs.flatten(0, 1), batch.skill.flatten(0, 1)
        unit = (batch.action - self.middle) / self.reach
        discount = extras["discount"] if "discount" in extras else torch.full_like(reward, self.cfg.discount)
        return FlatBatch(
            obs,
            skill.to(obs.dtype),
            unit.flatten(0, 1).to(obs.dtype),
            reward.flatten().to(obs.dtype),
            (discount * ~batch.terminated).flatten().to(obs.dtype),
            batch.next_obs.flatten(0, 1),
            batch.valid.flatten().to(obs.dtype),
        )

    @torch.no_grad()
    def sync_behaviour_policy(self) -> None:
        """Explore as the actor is now until it has learned twice more; nothing where the actor itself explores."""
        if self.behaviour is not None:
            torch._foreach_copy_([*self.behaviour.parameters()], [*self.actor.parameters()])

    def learn(
        self,
        obs: Tensor,
        skill: Tensor,
        action: Tensor,
        reward: Tensor,
        discount: Tensor,
        next_obs: Tensor,
        valid: Tensor,
        noise: Tensor,
    ) -> Tensor:
        """What is noted of one update, (3,), on rows (B, ...) of which those with `valid` 1 are transitions.

        `noise` (2, B, A) is standard normal: for the target's action and for the actor's.
        """
        first = self.critic_step(obs, skill, action, reward, discount, next_obs, valid, noise[0])
        second = self.actor_step(obs, skill, valid, noise[1])
        with torch.no_grad():
            slow: list[Tensor] = [*self.target.parameters()]
            fast: list[Tensor] = [*self.critic.parameters()]
            torch._foreach_lerp_(slow, fast, self.cfg.target_rate)  # the same numbers as one by one, in fewer launches
        return torch.cat([first, second])

    def critic_loss(
        self,
        obs: Tensor,
        skill: Tensor,
        action: Tensor,
        reward: Tensor,
        discount: Tensor,
        next_obs: Tensor,
        valid: Tensor,
        noise: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Both values' squared errors, and with them the mean value."""
        value = self.next_value(next_obs, skill, noise)
        return self.critic_loss_from_q(self.q_values(obs, skill, action), reward, discount, value, valid)

    def q_values(self, obs: Tensor, skill: Tensor, action: Tensor) -> Tensor:
        """Both values (2, B) of what was done."""
        values: Tensor = self.critic(obs, skill, action)
        return values

    @torch.no_grad()
    def next_value(self, next_obs: Tensor, skill: Tensor, noise: Tensor) -> Tensor:
        """The smaller value (B,) of what the actor would do next, by the target."""
        return self.target_value(next_obs, skill, self.next_action(next_obs, skill, noise))

    @torch.no_grad()
    def next_action(self, next_obs: Tensor, skill: Tensor, noise: Tensor) -> Tensor:
        """What the actor would do next, (B, A)."""
        return self._noisy(self.actor(next_obs, skill), noise)

    @torch.no_grad()
    def target_value(self, obs: Tensor, skill: Tensor, action: Tensor) -> Tensor:
        """The target's smaller value (B,) of these actions."""
        values: Tensor = self.target(obs, skill, action)
        return values.amin(0)

    def critic_loss_from_q(
        self, values: Tensor, reward: Tensor, discount: Tensor, next_value: Tensor, valid: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The critic's loss where what was done (2, B) and what follows (B,) are valued already."""
        wanted = reward + discount * next_value  # (B,)
        share = valid / valid.sum().clamp_min(1)
        loss = ((values - wanted).square() * share).sum()
        return loss, torch.stack([loss, (values * share).sum() / 2])

    def actor_loss(self, obs: Tensor, skill: Tensor, valid: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """How little the smaller value of the actor's actions is."""
        return self.actor_loss_from_actions(self.actor_actions(obs, skill, noise), obs, skill, valid)

    def actor_actions(self, obs: Tensor, skill: Tensor, noise: Tensor) -> Tensor:
        """The actions (B, A) that the actor is to be judged by."""
        return self._noisy(self.actor(obs, skill), noise)

    def actor_loss_from_actions(
        self, action: Tensor, obs: Tensor, skill: Tensor, valid: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The actor's loss where its actions are there already."""
        # The critic only judges here: without gradients of its own weights.
        judge = {name: weight.detach() for name, weight in self.critic.named_parameters()}
        value = torch.minimum(*functional_call(self.critic, judge, (obs, skill, action)))
        loss = -(value * valid / valid.sum().clamp_min(1)).sum()
        return loss, loss.unsqueeze(0)

    def _noisy(self, unit: Tensor, noise: Tensor) -> Tensor:
        """Actions with clipped noise, clamped to the bounds without stopping gradients there."""
        clip = self.cfg.noise_clip
        moved = unit + (self.cfg.noise * noise).clamp(-clip, clip)
        clamped = moved.clamp(EDGE - 1, 1 - EDGE)
        return moved - moved.detach() + clamped.detach()

    def train_state(self) -> State:
        """All three networks and both optimisers."""
        return {
            "modules": {name: value.detach().clone() for name, value in self.state_dict().items()},
            "actor_optimizer": optimizer_state(self.actor_step.optimizer),
            "critic_optimizer": optimizer_state(self.critic_step.optimizer),
        }

    def load_train_state(self, state: State) -> None:
        """Put back what `train_state` gave."""
        self.load_state_dict(state["modules"])
        for step, name in ((self.actor_step, "actor_optimizer"), (self.critic_step, "critic_optimizer")):
            load_optimizer_state(step.optimizer, state[name])
            step.invalidate_graph()
