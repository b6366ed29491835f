"""One forward and one inverse model whose errors are plain norms, not squared: URLB's ICM, which trains an encoding.

    loss = mean ‖z' − f(z, a)‖₂ + mean ‖a − g(z, z')‖₂            f: `ahead`, g: `back`

Each model has one hidden ReLU layer; orthogonal weights of gain 1, zero biases (URLB utils.py). g ends in tanh, URLB's
actions lying in [-1, 1]; here the tanh is scaled to the action's bounds, and omitted where there are none. Classes,
which URLB does not have, are predicted with cross-entropy.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from intrigue.nn.networks import init_orthogonal, mlp
from intrigue.ops.matmul import hidden_linear
from intrigue.ops.output_layer import hidden_then_output
from intrigue.ops.row_norm import row_norm
from intrigue.spaces import ActionSpec


class IcmDynamics(nn.Module):
    """The loss of encodings z, z' (..., D) and action inputs (..., A); gradients reach both encodings."""

    middle: Tensor
    reach: Tensor

    def __init__(self, width: int, spec: ActionSpec, hidden: int) -> None:
        super().__init__()
        self.spec = spec
        self.ahead = init_orthogonal(mlp((width + spec.width, hidden, width), nn.ReLU), 1.0)
        self.back = init_orthogonal(mlp((2 * width, hidden, spec.width), nn.ReLU), 1.0)
        self.bounded = spec.kind == "continuous" and all(map(math.isfinite, (*spec.low, *spec.high)))
        low, high = (torch.tensor(each if self.bounded else ()) for each in (spec.low, spec.high))
        self.register_buffer("middle", (high + low) / 2, persistent=False)
        self.register_buffer("reach", (high - low) / 2, persistent=False)

    def forward(self, phi: Tensor, next_phi: Tensor, action: Tensor) -> Tensor:
        """Mean forward error plus mean inverse error, a scalar."""
        joined, pair = torch.cat([phi, action], -1), torch.cat([phi, next_phi], -1)
        ahead = hidden_linear(self.ahead[2], hidden_linear(self.ahead[0], joined).relu())
        guess = hidden_then_output(self.back[0], self.back[2], pair)
        return _mean_norm(next_phi - ahead) + self._inverse_error(guess, action)

    def _inverse_error(self, guess: Tensor, action: Tensor) -> Tensor:
        if self.spec.kind == "continuous":
            guess = self.middle + self.reach * guess.tanh() if self.bounded else guess
            return _mean_norm(action - guess)
        parts = zip(guess.split(self.spec.sizes, -1), action.split(self.spec.sizes, -1), strict=True)
        return torch.stack([-(wanted * part.log_softmax(-1)).sum(-1).mean() for part, wanted in parts]).sum()


def _mean_norm(rows: Tensor) -> Tensor:
    mean: Tensor = row_norm(rows).mean()
    return mean
