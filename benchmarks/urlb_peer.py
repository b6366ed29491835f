"""URLB's updates with the arithmetic, order and optimiser of its code, written anew, so that both are timed in turns.

    ddpg           critic, actor, target; the actor's loss also makes the critic's gradients, which nobody reads
    disagreement   five models in a loop learn, then their variance is the reward; then the same
    apt            forward and inverse model learn, then all pairs of encodings are subtracted, (B, B, D), for the
                   neighbours; then the same

Batches lie ready: what URLB's loading processes do is not in these times. rll-research/url_benchmark, its HEAD.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

STATE, ACTION, HIDDEN, ROWS = 24, 6, 1024, 1024  # walker, hidden_dim, batch_size
NOISE, NOISE_CLIP, EDGE = 0.2, 0.3, 1e-6
RATE, DISCOUNT, TAU = 1e-4, 0.99, 0.01
MODELS, FEATURES, NEIGHBOURS = 5, 512, 12
Batch = tuple[Tensor, Tensor, Tensor]


def trunk(width: int, out: int) -> nn.Sequential:
    """One normalised layer."""
    return nn.Sequential(nn.Linear(width, out), nn.LayerNorm(out), nn.Tanh())


def head(width: int, out: int) -> nn.Sequential:
    """One hidden layer."""
    return nn.Sequential(nn.Linear(width, HIDDEN), nn.ReLU(inplace=True), nn.Linear(HIDDEN, out))


class Networks(nn.Module):
    """Actor and twin critic."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(trunk(STATE, HIDDEN), head(HIDDEN, ACTION), nn.Tanh())
        self.critic, self.target = (
            nn.ModuleList([trunk(STATE + ACTION, HIDDEN), head(HIDDEN, 1), head(HIDDEN, 1)]) for _ in range(2)
        )
        self.target.load_state_dict(self.critic.state_dict())

    def values(self, critic: nn.ModuleList, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Both values, (B, 1) each."""
        seen = critic[0](torch.cat([obs, action], -1))
        return critic[1](seen), critic[2](seen)

    def noisy(self, obs: Tensor) -> Tensor:
        """The actor's action with clipped noise; gradients pass the clamp."""
        mean = self.actor(obs)
        moved = mean + (torch.randn_like(mean) * NOISE).clamp(-NOISE_CLIP, NOISE_CLIP)
        clamped = moved.clamp(EDGE - 1, 1 - EDGE)
        through: Tensor = moved - moved.detach() + clamped.detach()
        return through


class Ddpg:
    """One update at a time."""

    def __init__(self) -> None:
        self.nets = Networks()
        self.actor_adam = adam(self.nets.actor)
        self.critic_adam = adam(self.nets.critic)

    def learn(self, batch: Batch, reward: Tensor) -> None:
        """Critic, actor, target; what is logged is read at once."""
        nets, (obs, action, next_obs) = self.nets, batch
        with torch.no_grad():
            wanted = reward + DISCOUNT * torch.min(*nets.values(nets.target, next_obs, nets.noisy(next_obs)))
        first, second = nets.values(nets.critic, obs, action)
        descend(self.critic_adam, functional.mse_loss(first, wanted) + functional.mse_loss(second, wanted))
        first.mean().item(), second.mean().item(), wanted.mean().item(), reward.mean().item()
        descend(self.actor_adam, -torch.min(*nets.values(nets.critic, obs, nets.noisy(obs))).mean())
        for fast, slow in zip(nets.critic.parameters(), nets.target.parameters(), strict=True):
            slow.data.copy_(TAU * fast.data + (1 - TAU) * slow.data)


class Disagreement:
    """The bonus of an ensemble."""

    def __init__(self) -> None:
        self.models = nn.ModuleList(head(STATE + ACTION, STATE) for _ in range(MODELS))
        self.adam = adam(self.models)

    def __call__(self, obs: Tensor, action: Tensor, next_obs: Tensor) -> Tensor:
        """Learn, then the variance, (B, 1)."""
        rows = torch.cat([obs, action], 1)
        errors = [torch.norm(next_obs - model(rows), dim=-1, p=2, keepdim=True) for model in self.models]
        descend(self.adam, torch.cat(errors, 1).mean())
        with torch.no_grad():
            return torch.stack([model(rows) for model in self.models]).var(0).mean(-1, keepdim=True)


class Apt:
    """The bonus of distances in a learned encoding."""

    def __init__(self) -> None:
        self.nets = nn.ModuleList(
            [trunk(STATE, FEATURES), head(FEATURES + ACTION, FEATURES), head(2 * FEATURES, ACTION)]
        )
        self.adam = adam(self.nets)

    def __call__(self, obs: Tensor, action: Tensor, next_obs: Tensor) -> Tensor:
        """Learn, then the logarithm of the mean distance to the nearest, (B, 1)."""
        encode, ahead, back = self.nets
        here, there = encode(obs), encode(next_obs)
        forward = torch.norm(there - ahead(torch.cat([here, action], -1)), dim=-1, p=2)
        inverse = torch.norm(action - back(torch.cat([here, there], -1)).tanh(), dim=-1, p=2)
        descend(self.adam, forward.mean() + inverse.mean())
        with torch.no_grad():
            here = encode(obs)
            apart = torch.norm(here[:, None, :] - here[None, :, :], dim=-1, p=2)
            near = apart.topk(NEIGHBOURS, dim=1, largest=False, sorted=True).values
            bonus: Tensor = near.mean(1, keepdim=True).add(1).log()
            return bonus


def updates() -> dict[str, Callable[[], None]]:
    """One update of each, by the preset of ours that it stands beside."""
    generator = torch.Generator().manual_seed(0)
    obs, next_obs = torch.randn(2, ROWS, STATE, generator=generator)
    batch = (obs, torch.rand(ROWS, ACTION, generator=generator) * 2 - 1, next_obs)
    given = torch.rand(ROWS, 1, generator=generator)
    bonuses: dict[str, Callable[..., Tensor]] = {
        "scratch-urlb": lambda *_: given,
        "disagreement-urlb": Disagreement(),
        "apt-urlb": Apt(),
    }

    def update(agent: Ddpg, bonus: Callable[..., Tensor]) -> Callable[[], None]:
        return lambda: agent.learn(batch, bonus(*batch))

    return {preset: update(Ddpg(), bonus) for preset, bonus in bonuses.items()}


def adam(module: nn.Module) -> torch.optim.Adam:
    """As URLB makes it."""
    return torch.optim.Adam(module.parameters(), lr=RATE)


def descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """One step; the loss is read for the log."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    loss.item()
