"""Deep Q-learning from replay (Mnih et al. 2015), double (van Hasselt et al. 2016), with n-step targets.

    y = Σ_{j<m} γ^j r_j + γ^m [not terminated] Q⁻(s_m, argmax_a Q(s_m, a))          m ≤ n steps, cut at an episode's end
    L = mean w · huber(Q(s_0, a_0) − y)        huber(δ) = ½ δ² for |δ| ≤ 1, |δ| − ½ beyond

Q⁻ is a copy of Q made every `target_every` steps. Plain targets (`double=false`) take max_a Q⁻(s_m, a). Actions are
uniform with chance ε, which falls from `epsilon_start` to `epsilon_end`. w = 1 unless windows are drawn by priority
(Schaul et al. 2016), then their importance weights.

Every transition of a window has its own bonus: r_j is the reward handed to `update`, scored with the models as they are
when the window is drawn. A truncated episode bootstraps from the value of its last successor.

Sources: Mnih et al. 2015 is doi:10.1038/nature14236, extended data table 1; van Hasselt et al. 2016 arXiv:1509.06461;
Schaul et al. 2016 arXiv:1511.05952; Wang et al. 2016 arXiv:1511.06581; Rainbow is Hessel et al. 2018,
arXiv:1710.02298, table 1; CleanRL is its dqn_atari.py. Steps are agent steps; papers count frames, four to a step.

Differs from Mnih et al. 2015: double targets, Adam instead of RMSProp, target copies as often as CleanRL's.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from intrigue.agents.base import ReplayAgent
from intrigue.agents.registry import register_agent
from intrigue.fields import Discount, Fraction, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from intrigue.nn.networks import ConvTrunk, freeze, init_orthogonal, mlp
from intrigue.ops.optimizer_step import backward_and_step, load_optimizer_state, optimizer_state
from intrigue.replay.plan import ReplayPlan
from intrigue.spaces import Spaces
from intrigue.state import State
from intrigue.types import Acted, Extras, Metrics, Stream, Transitions

LOSS_NOT_FINITE = (
    "DQN's loss is not finite; its optimiser was not stepped. Lower --agent.learning-rate, or look at the rewards."
)


@dataclass(frozen=True)
class DQNConfig:
    """Settings of DQN; defaults as CleanRL's dqn_atari.py, which follows Mnih et al. 2015, unless said."""

    capacity: PositiveInt = 1_000_000  # transitions in the replay: Mnih et al. 2015, CleanRL
    replay_place: Literal["auto", "device", "host"] = "auto"  # where it is kept; auto: with the networks if it fits
    batch: PositiveInt = 32  # windows in one update: Mnih et al. 2015, CleanRL
    n_step: PositiveInt = 1  # steps in a target: Mnih et al. 2015, CleanRL; Rainbow 3
    learning_starts: NonNegativeInt = 80_000  # random steps before the first update: CleanRL; Mnih et al. 2015 50,000
    train_every: PositiveInt = 4  # agent steps between two updates: Mnih et al. 2015, CleanRL
    learning_rate: PositiveFloat = 1e-4  # Adam: CleanRL; Rainbow 6.25e-5
    adam_eps: PositiveFloat = 1e-8  # CleanRL; Rainbow 1.5e-4
    discount: Discount = 0.99  # γ: Mnih et al. 2015, CleanRL
    double: bool = True  # van Hasselt et al. 2016
    target_every: PositiveInt = 1_000  # steps between copies: CleanRL; Mnih et al. 2015 40,000; Rainbow 8,000
    epsilon_start: Fraction = 1.0  # Mnih et al. 2015, CleanRL
    epsilon_end: Fraction = 0.01  # CleanRL, Rainbow without noisy nets; Mnih et al. 2015 0.1
    epsilon_steps: PositiveInt = 1_000_000  # steps over which ε falls: CleanRL; Mnih et al. 2015 250,000
    max_grad_norm: NonNegativeFloat = 10.0  # gradients are clipped to this length: Wang et al. 2016; 0 is off, as Mnih
    priority: Fraction = 0.0  # α of prioritised replay; 0 is off; Schaul et al. 2016 0.6, Rainbow 0.5
    importance: Fraction = 0.4  # β at first, on its way to 1: Schaul et al. 2016, Rainbow
    importance_steps: PositiveInt = 10_000_000  # steps until β is 1, the whole of CleanRL's run; priority only
    hidden: PositiveInt = 128  # vectors: width of two ReLU layers; ours
    features: PositiveInt = 512  # pixels: width after the convolutions: Mnih et al. 2015
    rollout_steps: PositiveInt = 128  # steps of each environment between two log lines, as PPO

    def problems(self, num_envs: int) -> list[str]:
        """Rules between fields."""
        del num_envs
        if self.capacity < self.batch:
            return [f"capacity: {self.capacity} transitions are fewer than one batch. Use {self.batch} or more."]
        return []


@register_agent("dqn", config=DQNConfig)
@final
class DQN(ReplayAgent):
    """Q-learning with ε-greedy actions."""

    feed = "replay"
    takes_skills = True
    two_streams = False

    epsilon: Tensor

    def __init__(self, cfg: DQNConfig, spaces: Spaces, streams: Sequence[str]) -> None:
        super().__init__(cfg, spaces, streams)
        self.cfg = cfg
        self.rollout_steps = cfg.rollout_steps
        self.plan = self.plan_of(cfg)
        self.online = QNetwork(spaces, cfg.hidden, cfg.features)
        self.target = freeze(copy.deepcopy(self.online))
        self.register_buffer("epsilon", torch.tensor(cfg.epsilon_start, dtype=torch.float64))
        self._copies = 0
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=cfg.learning_rate, eps=cfg.adam_eps)

    @classmethod
    def plan_of(cls, cfg: DQNConfig) -> ReplayPlan:
        """The replay plan of these settings."""
        return ReplayPlan(
            capacity=cfg.capacity,
            batch=cfg.batch,
            learning_starts=cfg.learning_starts,
            train_every=cfg.train_every,
            discount=cfg.discount,
            steps=cfg.n_step,
            priority=cfg.priority,
            importance=cfg.importance,
            importance_steps=cfg.importance_steps,
            place=cfg.replay_place,
        )

    @classmethod
    def refusal(cls, cfg: DQNConfig, spaces: Spaces) -> str | None:
        """DQN needs one discrete action."""
        if spaces.action.kind == "discrete":
            return None
        return f"{spaces.action.kind} actions cannot be compared one by one. Use --agent ppo."

    @torch.no_grad()
    def act(self, obs: Tensor, skill: Tensor, *, explore: bool, rng: Generator) -> Acted:
        """The best action, or with probability ε a uniform one."""
        value = self.online(obs, skill)
        best = value.argmax(-1)
        if not explore:
            return Acted(best, {})
        chance = torch.rand(len(best), generator=rng, device=rng.device, dtype=torch.float64)
        random_action = torch.randint(value.shape[-1], best.shape, generator=rng, device=rng.device)
        return Acted(torch.where(chance < self.epsilon, random_action, best), {})

    def update(
        self, batch: Transitions, streams: Sequence[Stream], extras: Extras, *, rng: Generator, step: int
    ) -> Metrics:
        """One gradient step on windows (n, B) and their rewards."""
        (stream,) = streams
        target, valid = self.targets(batch, stream.weight * stream.reward)
        value = self.online(batch.obs[0], batch.skill[0])
        chosen = value.gather(-1, batch.action[0].unsqueeze(-1)).squeeze(-1)
        error = (chosen - target) * valid  # (B,)
        weight = extras.get("weight", torch.ones_like(error))
        each = functional.huber_loss(error, torch.zeros_like(error), reduction="none")
        loss = (weight * each).sum() / valid.sum().clamp_min(1)
        backward_and_step(self.optimizer, loss, LOSS_NOT_FINITE, self.cfg.max_grad_norm)
        self.errors = error.detach()
        self._update_schedules(step)
        return {
            "losses/td_loss": float(loss.detach()),
            "losses/q_values": float(chosen.detach().mean()),
            "charts/epsilon": float(self.epsilon),
        }

    @torch.no_grad()
    def targets(self, batch: Transitions, reward: Tensor) -> tuple[Tensor, Tensor]:
        """y of each window (B,), and whether its first transition is valid (B,)."""
        valid = batch.valid.clone()  # (n, B): the transitions before the first end
        for t in range(1, len(valid)):
            valid[t] &= valid[t - 1] & ~batch.ended[t - 1]
        num_steps = valid.sum(0)  # (B,)
        power = self.cfg.discount ** torch.arange(len(valid) + 1, device=reward.device, dtype=reward.dtype)
        reward_sum = (power[:-1, None] * reward * valid).sum(0)
        last = (num_steps - 1).clamp_min(0)
        columns = torch.arange(len(last), device=last.device)
        value = self._best_next_value(batch.next_obs[last, columns], batch.skill[last, columns])
        bootstrap = power[num_steps] * value * ~batch.terminated[last, columns]
        return reward_sum + bootstrap, valid[0]

    def _best_next_value(self, obs: Tensor, skill: Tensor) -> Tensor:
        value: Tensor = self.target(obs, skill)
        chooser = self.online(obs, skill) if self.cfg.double else value
        return value.gather(-1, chooser.argmax(-1, keepdim=True)).squeeze(-1)

    def _update_schedules(self, step: int) -> None:
        """Update ε, and the target network when a copy is due."""
        cfg = self.cfg
        done = min(1.0, step / cfg.epsilon_steps)
        self.epsilon.fill_(cfg.epsilon_start + done * (cfg.epsilon_end - cfg.epsilon_start))
        if step // cfg.target_every != self._copies:
            self._copies = step // cfg.target_every
            self.target.load_state_dict(self.online.state_dict())

    def settle(self) -> None:
        """Play with the final ε, however far the run is: at its start ε is 1."""
        self.epsilon.clamp_(max=self.cfg.epsilon_end)

    def train_state(self) -> State:
        """Both networks, ε, the optimiser, and how many target copies were made."""
        return {
            "modules": {name: value.detach().clone() for name, value in self.state_dict().items()},
            "optimizer": optimizer_state(self.optimizer),
            "copies": self._copies,
        }

    def load_train_state(self, state: State) -> None:
        """Restore what `train_state` returned."""
        self.load_state_dict(state["modules"])
        load_optimizer_state(self.optimizer, state["optimizer"])
        self._copies = int(state["copies"])


class QNetwork(nn.Module):
    """Values of all actions: the Nature convolutions and one layer for pixels, two hidden layers for vectors."""

    def __init__(self, spaces: Spaces, hidden: int, features: int) -> None:
        super().__init__()
        self.pixels = spaces.obs.kind == "pixels"
        self.body: nn.Module
        if self.pixels:
            self.body = nn.Sequential(ConvTrunk(spaces.obs.shape, features, "nature"), nn.ReLU())
            width = features + spaces.skill  # a skill is concatenated to the features of an image
        else:
            sizes = (spaces.obs.size + spaces.skill, hidden, hidden)
            self.body = nn.Sequential(init_orthogonal(mlp(sizes, nn.ReLU), math.sqrt(2)), nn.ReLU())
            width = hidden
        self.head = init_orthogonal(nn.Linear(width, spaces.action.width), 1.0)

    def forward(self, obs: Tensor, skill: Tensor) -> Tensor:
        """(B, *obs), (B, K) -> (B, A)."""
        if self.pixels:
            features = torch.cat([self.body(obs.float() / 255), skill], -1)
        else:
            features = self.body(torch.cat([obs, skill], -1))
        value: Tensor = self.head(features)
        return value
