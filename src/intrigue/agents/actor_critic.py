"""Policy and values over observations and skills: the networks of PPO, and how their input is scaled.

    vectors        two tanh layers, separate for policy and values
    nature         pixels: the Nature trunk with ReLU, orthogonal weights, policy and values on one body
    dis            pixels: Disagreement's trunk (512, linear), then 512 ReLU, 512 ReLU; normc dense weights

A skill is concatenated to a vector observation, or to the features of an image.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from intrigue.agents.distributions import ActionHead
from intrigue.nn.networks import ConvTrunk, Style, init_normc, init_orthogonal, mlp
from intrigue.nn.normalize import RunningMoments
from intrigue.spaces import Spaces

InputNorm = Literal["none", "elementwise", "scalar"]


class ActorCritic(nn.Module):
    """An action distribution's parameters and `values` state values."""

    def __init__(
        self,
        spaces: Spaces,
        values: int,
        *,
        style: Style,
        hidden: int,
        features: int,
        log_std: float,
        input_norm: InputNorm,
    ) -> None:
        super().__init__()
        self.pixels = spaces.obs.kind == "pixels"
        self.input_norm: InputNorm = input_norm
        self.policy_body: nn.Module
        self.value_body: nn.Module
        if self.pixels:
            self.policy_body = self.value_body = pixel_body(spaces.obs.shape, features, style)
            width = features + spaces.skill
        else:
            width = hidden
            sizes = (spaces.obs.size + spaces.skill, width, width)
            self.policy_body, self.value_body = (
                nn.Sequential(init_orthogonal(mlp(sizes), math.sqrt(2)), nn.Tanh()) for _ in range(2)
            )
        self.head = ActionHead(spaces.action, width, gain=0.01, log_std=log_std)  # gain: CleanRL
        self.value_head = nn.Linear(width, values)
        if self.pixels and style == "dis":
            init_normc(self.head.layer)
            init_normc(self.value_head)
        else:
            init_orthogonal(self.value_head, 1.0)
        self.obs_moments = RunningMoments(spaces.obs.shape)

    def forward(self, obs: Tensor, skill: Tensor) -> tuple[Tensor, Tensor]:
        """Observations (B, *obs) and skills (B, K) to the head's parameters (B, P) and values (B, H)."""
        inputs = self._input(obs)
        features = self._features(self.policy_body, inputs, skill)
        value_features = features if self.pixels else self._features(self.value_body, inputs, skill)
        return self.head(features), self.value_head(value_features)

    def value(self, obs: Tensor, skill: Tensor) -> Tensor:
        """The values alone, (B, H)."""
        value: Tensor = self.value_head(self._features(self.value_body, self._input(obs), skill))
        return value

    def _features(self, body: nn.Module, inputs: Tensor, skill: Tensor) -> Tensor:
        if self.pixels:
            return torch.cat([body(inputs), skill], -1)
        features: Tensor = body(torch.cat([inputs, skill], -1))
        return features

    def _input(self, obs: Tensor) -> Tensor:
        if self.input_norm == "none":
            return obs.float().div_(255) if self.pixels else obs
        std = self.obs_moments.std()
        scale = std.mean() if self.input_norm == "scalar" else std
        return (obs - self.obs_moments.mean.float()).div_(scale.float())


def pixel_body(shape: tuple[int, ...], features: int, style: Style) -> nn.Module:
    """From images (B, C, H, W) to features (B, `features`)."""
    trunk = ConvTrunk(shape, features, style)
    if style == "nature":
        return nn.Sequential(trunk, nn.ReLU())
    dense = [init_normc(nn.Linear(features, features)) for _ in range(2)]  # DIS `cnn_policy.py`: two layers of 512
    return nn.Sequential(trunk, dense[0], nn.ReLU(), dense[1], nn.ReLU())
