"""URLB's actor and critic over states (agent/ddpg.py, agent/aps.py).

    actor     [s, z]    ─► Linear, LayerNorm, tanh ─► Linear, ReLU ─► Linear ─► tanh          μ in [-1, 1]
    critic    [s, z, a] ─► Linear, LayerNorm, tanh ─┬► Linear, ReLU ─► Linear                 Q₁
                                   (one trunk)      └► Linear, ReLU ─► Linear                 Q₂

z is the skill the policy follows, if any. A `successor` critic has as many outputs per head as a skill has numbers, and
Q_i = z · ψ_i (APS). Weights are orthogonal of gain 1, biases 0 (URLB utils.py).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from intrigue.nn.networks import init_orthogonal, mlp
from intrigue.ops.first_layer import FirstLayer
from intrigue.ops.matmul import EnsembleLinear
from intrigue.ops.output_layer import ensemble_hidden_then_output, hidden_then_output
from intrigue.ops.precision import uses_bfloat16


class Actor(nn.Module):
    """The mean action in units where the bounds are -1 and 1."""

    def __init__(self, state: int, action: int, hidden: int) -> None:
        super().__init__()
        self.trunk = FirstLayer(state, hidden)
        self.policy = _head(hidden, action)
        init_orthogonal(self, 1.0)

    def forward(self, obs: Tensor, skill: Tensor) -> Tensor:
        """(B, S), (B, K) -> (B, A)."""
        seen = self.trunk(torch.cat([obs, skill], -1), bfloat16=uses_bfloat16())
        return hidden_then_output(self.policy[0], self.policy[2], seen).tanh()


class TwinCritic(nn.Module):
    """Two values of a state and an action that share their first layer."""

    def __init__(self, state: int, action: int, hidden: int, successor: int = 0) -> None:
        super().__init__()
        self.successor = successor
        self.trunk = FirstLayer(state + action, hidden)
        # Both heads in one product each: half as many to start, and a GPU is better filled.
        self.hidden, self.out = EnsembleLinear(2, hidden, hidden), EnsembleLinear(2, hidden, successor or 1)
        init_orthogonal(self.trunk, 1.0)
        for layer in (self.hidden, self.out):
            for head in range(2):
                nn.init.orthogonal_(layer.weight.data[head].mT)  # a layer of this kind keeps its weights transposed
            nn.init.zeros_(layer.bias)

    def forward(self, obs: Tensor, skill: Tensor, action: Tensor) -> Tensor:
        """(B, S), (B, K), (B, A) -> (2, B)."""
        seen = self.trunk(torch.cat([obs, skill, action], -1), bfloat16=uses_bfloat16())
        both = ensemble_hidden_then_output(self.hidden, self.out, seen)  # (2, B, 1 or K)
        return (both * skill).sum(-1) if self.successor else both.squeeze(-1)


def _head(width: int, outputs: int) -> nn.Sequential:
    return mlp((width, width, outputs), nn.ReLU)
