"""Curiosity: the one owner of everything between a raw bonus and the reward a learner maximises.

Order of one step, written once and nowhere else:

    1 prepare   observations with the moments as they were, actions as network inputs
    2 score     raw bonus (T, N), pure, with the models as they are
    3 learn     the reward's loss over seeded minibatches, then the reward's memories
    4 observe   the scale of the bonus (used now), the observation moments (used from the next batch on)
    5 mix       r = c_int · bonus / scale + c_ext · clip(reward)      a new tensor; the batch is never edited

With `streams="two"` the parts are also handed on apart, for a learner with two value heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import torch
from torch import Tensor, nn

from intrigue.config.curiosity import CuriosityConfig, split_options
from intrigue.curiosity.prefetch import FeaturePrefetcher
from intrigue.curiosity.trainer import RewardTrainer
from intrigue.errors import ConfigError, Problem
from intrigue.nn.encoders import encode_action, encode_next_obs
from intrigue.nn.feature_noise import FeatureNoise
from intrigue.nn.normalize import ReturnScale, RunningMoments, ValueScale, valid_moments
from intrigue.ops.execution import Mode
from intrigue.ops.precision import exact_float32
from intrigue.rewards.registry import REWARDS
from intrigue.rng import Streams, seeded_construction
from intrigue.skills import check_skill
from intrigue.spaces import ActionCodec, ObsCodec, Spaces
from intrigue.state import State
from intrigue.types import (
    Components,
    Encoded,
    Metrics,
    Prepared,
    RewardStep,
    Stream,
    Transitions,
    check_finite,
    check_shapes,
)


class Mixed(NamedTuple):
    """A batch's reward, what it was made of, each (T, N), and the scale of the bonus, ()."""

    reward: Tensor
    bonus: Tensor
    extrinsic: Tensor
    scale: Tensor


class Curiosity(nn.Module):
    """A bonus with its models, optimiser, statistics and coefficients.

    `reward` is a name, an expression of names such as `0.5*nnm + rnd`, or settings such as `intrigue.rewards.NNM(n=5)`.
    `options` are fields of `CuriosityConfig` and of the reward's own settings, by name.
    """

    def __init__(
        self,
        reward: object,
        obs_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        device: torch.device | str = "cpu",
        seed: int = 0,
        int_coef: float = 1.0,
        ext_coef: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__()
        name, cfg, reward_options = split_options(reward, {"int_coef": int_coef, "ext_coef": ext_coef, **options})
        self._obs_codec: ObsCodec | None = ObsCodec(obs_space)
        self._action_codec: ActionCodec | None = ActionCodec(action_space)
        self._assemble(name, reward_options, cfg, Spaces(self._obs_codec.spec, self._action_codec.spec), device, seed)

    @classmethod
    def from_config(
        cls,
        reward: str,
        reward_options: Mapping[str, Any],
        cfg: CuriosityConfig,
        spaces: Spaces,
        *,
        device: torch.device | str,
        seed: int,
    ) -> Curiosity:
        """Curiosity over batches that are encoded already, as the collector gives them."""
        self = cls.__new__(cls)
        nn.Module.__init__(self)
        self._obs_codec = self._action_codec = None
        self._assemble(reward, reward_options, cfg, spaces, device, seed)
        return self

    def _assemble(
        self,
        name: str,
        options: Mapping[str, Any],
        cfg: CuriosityConfig,
        spaces: Spaces,
        device: torch.device | str,
        seed: int,
    ) -> None:
        entry = REWARDS.get(name)
        self.cfg, self.spaces = cfg, spaces
        reward_cfg = entry.config(**{**entry.defaults, **options})
        if reason := entry.cls.refusal(reward_cfg, spaces):
            raise ConfigError([Problem("reward", f"{name}: {reason}")])
        self.skills = entry.cls.skills(reward_cfg)
        with seeded_construction(seed, f"init/reward/{name}"):
            self.reward = entry.cls(reward_cfg, spaces)
        self.obs_moments = RunningMoments(spaces.obs.shape)
        self.scale = ValueScale() if cfg.scale == "value" else ReturnScale(cfg.scale_discount)
        self.to(device)
        self._ahead = FeaturePrefetcher()
        self.streams = Streams(seed, device)
        self.execute("plain")
        for module in self.reward.modules():
            if isinstance(module, FeatureNoise):
                noise = (cfg.feature_noise, cfg.feature_noise_units, cfg.feature_noise_draw)
                module.attach(*noise, self.streams["noise"])
        self.steps_seen = 0

    def execute(self, mode: Mode) -> None:
        """How the reward's models learn from now on (`intrigue.ops.execution`); to be said before the first batch."""
        self.trainer = RewardTrainer(self.reward, self.cfg, self.streams["reward"], (self.streams["noise"],), mode)

    def step(
        self,
        *,
        obs: Any,
        action: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        next_obs: Any,
        valid: Any = None,
        skill: Any = None,
    ) -> RewardStep:
        """Bonus for a (T, N, ...) batch of arrays or tensors, learning from it on the way.

        `next_obs` must be the true successor, also where an episode ended. `valid` marks rows that are transitions at
        all (vector environments that reset one step late have rows that are not). `skill` (T, N, K) is what the policy
        was asked to do, for rewards with skills (`curiosity.skills` says how they look and draws them).
        """
        assert self._obs_codec is not None and self._action_codec is not None
        device = self.obs_moments.mean.device
        rewards = _tensor(reward, device, torch.float32)
        batch = Transitions(
            obs=_tensor(self._obs_codec.encode_batch(_host(obs), lead=2), device),
            action=_tensor(self._action_codec.encode_batch(_host(action), lead=2), device),
            reward=rewards,
            terminated=_tensor(terminated, device, torch.bool),
            truncated=_tensor(truncated, device, torch.bool),
            next_obs=_tensor(self._obs_codec.encode_batch(_host(next_obs), lead=2), device),
            valid=torch.ones_like(rewards, dtype=torch.bool) if valid is None else _tensor(valid, device, torch.bool),
            skill=rewards.new_zeros(*rewards.shape, 0) if skill is None else _tensor(skill, device, torch.float32),
        )
        return self.step_batch(batch)

    def step_batch(self, batch: Transitions) -> RewardStep:
        """The five steps above, on an encoded batch."""
        check_skill(self.skills, batch.skill)
        check_shapes(batch, self.spaces, self.skills.width if self.skills else 0)
        if self.cfg.idle:
            return self._finish_step(batch, torch.zeros_like(batch.reward, dtype=torch.float32), 0.0)
        with exact_float32():
            prepared, raw, parts = self.prepare_and_score(batch)
        check_finite("the intrinsic reward", raw)
        loss = self.trainer.fit(prepared)
        with torch.no_grad(), exact_float32():
            self.reward.observe(prepared, parts)
        if self.cfg.obs_moments == "running" and self.cfg.obs_norm != "none":
            self.obs_moments.observe(batch.next_obs[batch.valid])
            self._ahead.forget()
        step = self._finish_step(batch, raw, loss)
        step.metrics.update({f"intrinsic/part/{name}": float(part.mean()) for name, part in parts.items()})
        if self.cfg.feature_noise:
            step.metrics["intrinsic/feature_std"] = float(self.reward.noise.spread)
        return step

    def warm_up(self, obs: Any) -> None:
        """Let observations of a random policy, (..., *obs), into the moments before training."""
        encoded = obs if self._obs_codec is None else self._obs_codec.encode_batch(_host(obs), lead=2)
        self.obs_moments.observe(_tensor(encoded, self.obs_moments.mean.device))
        self._ahead.forget()

    def prefetch_features(self, obs: Tensor, count: int) -> None:
        """The first `count` steps of a rollout's observations (T, N, *obs) are there, and will be those of a batch.

        Optional: results are the same without it. On a GPU the features are computed while the environments step.
        """
        if self._encodes_pictures:
            self._ahead.look(obs, count, self._encode)

    def encode(self, batch: Transitions) -> Prepared:
        """The batch as `score`, `loss` and `observe` take it: prepared, or encoded by a network that never learns.

        To be called where float32 is exact.
        """
        if self._encodes_pictures:
            phi = self._ahead.take(batch.obs, self._encode)
            # Only observations that are not encoded yet are normalised: as float32 they take four times their memory.
            return Encoded.of(self.prepare(batch, reads=frozenset()), phi, encode_next_obs(batch, phi, self._encode))
        prepared, frozen = self.prepare(batch), self.reward.frozen_encoder
        return prepared if frozen is None else Encoded.of(prepared, *frozen.encode_pair(prepared))

    @property
    def _encodes_pictures(self) -> bool:
        return self.spaces.obs.kind == "pixels" and self.reward.frozen_encoder is not None

    def _encode(self, states: Tensor) -> Tensor:
        """By a network that never learns, (..., *obs) -> (..., D)."""
        assert self.reward.frozen_encoder is not None
        encodings: Tensor = self.reward.frozen_encoder(self._normalize(states))
        return encodings

    def prepare(self, batch: Transitions, reads: frozenset[str] | None = None) -> Prepared:
        """The batch as rewards see it: normalised float observations, actions as network inputs.

        An observation that the reward does not read is left empty, so that it cannot be read by mistake.
        """
        reads = self.reward.traits.inputs if reads is None else reads
        empty = batch.reward.new_empty(*batch.reward.shape, 0)
        obs = self._normalize(batch.obs) if "obs" in reads else empty
        next_obs = self._normalize(batch.next_obs) if "next_obs" in reads else empty
        return Prepared(
            obs=obs,
            action=encode_action(self.spaces.action, batch.action),
            reward=batch.reward,
            terminated=batch.terminated,
            truncated=batch.truncated,
            next_obs=next_obs,
            valid=batch.valid,
            skill=batch.skill,
            raw_obs=batch.obs,
            raw_next_obs=batch.next_obs,
        )

    def coefficient(self) -> float:
        """The weight of the bonus now: constant, or on the way from `int_coef` to `int_coef_final`."""
        if self.cfg.int_coef_steps == 0:
            return self.cfg.int_coef
        done = min(1.0, self.steps_seen / self.cfg.int_coef_steps)
        return self.cfg.int_coef + done * (self.cfg.int_coef_final - self.cfg.int_coef)

    def _normalize(self, obs: Tensor) -> Tensor:
        cfg, moments = self.cfg, self.obs_moments
        if cfg.obs_norm == "none":
            return obs.float() / 255 if self.spaces.obs.kind == "pixels" else obs.to(torch.float32, copy=True)
        # One scalar for all elements keeps rare elements small (Disagreement); per element is RND's way.
        std = moments.std().mean() if cfg.obs_norm == "scalar" else moments.std()
        normal = (obs - moments.mean.float()).div_(std.float())  # bytes become floats on the way, in one pass
        return normal.clamp_(-cfg.obs_clip, cfg.obs_clip) if cfg.obs_clip else normal

    @torch.no_grad()
    def prepare_and_score(self, batch: Transitions) -> tuple[Prepared, Tensor, Components]:
        """The first two of the five steps: the batch as rewards see it, the raw bonus (T, N), and its parts.

        To be called where float32 is exact.
        """
        prepared = self.encode(batch)
        return prepared, *self.compute_bonus(prepared)

    @torch.no_grad()
    def compute_bonus(self, prepared: Prepared) -> tuple[Tensor, Components]:
        """The second of the five steps alone, on what `encode` gave."""
        raw, parts = self.reward.score_parts(prepared)
        return raw.to(torch.float32) * prepared.valid, parts

    @torch.no_grad()
    def mix(self, batch: Transitions, raw: Tensor, coefficient: float) -> Mixed:
        """The last two: the scale moves on, and bonus and task reward become one. Reads nothing back from a device."""
        cfg = self.cfg
        extrinsic = batch.reward.float()
        extrinsic = extrinsic.clamp(-cfg.ext_clip, cfg.ext_clip) if cfg.ext_clip else extrinsic
        if cfg.scale == "total":
            total = coefficient * raw + cfg.ext_coef * extrinsic
            self.scale.observe(total)
            scale = self.scale.scale()
            return Mixed(total / scale, raw / scale, extrinsic, scale)
        if cfg.scale == "none":
            return Mixed(coefficient * raw + cfg.ext_coef * extrinsic, raw, extrinsic, raw.new_ones(()))
        if isinstance(self.scale, ValueScale):
            self.scale.observe(raw, batch.valid)
        else:  # a chain of returns runs on through rows that are no transitions
            self.scale.observe(raw)
        scale = self.scale.scale()
        bonus = raw / scale
        return Mixed(coefficient * bonus + cfg.ext_coef * extrinsic, bonus, extrinsic, scale)

    def _finish_step(self, batch: Transitions, raw: Tensor, loss: float) -> RewardStep:
        cfg, coefficient = self.cfg, self.coefficient()
        self.steps_seen += raw.numel()
        mixed = self.mix(batch, raw, coefficient)
        if cfg.streams == "two":
            streams = [
                Stream("extrinsic", mixed.extrinsic, cfg.ext_coef),
                Stream("intrinsic", mixed.bonus, coefficient),
            ]
        else:
            streams = [Stream("total", mixed.reward, 1.0)]
        counted = valid_moments(raw, batch.valid)
        scale = float(mixed.scale)
        metrics: Metrics = {
            "intrinsic/raw_mean": float(counted.mean),
            "intrinsic/raw_std": float(counted.var.sqrt()),
            "intrinsic/raw_max": float(raw.where(batch.valid, raw.min()).max()),
            "intrinsic/scaled_mean": float(counted.mean) / scale,
            "intrinsic/scale": scale,
            "intrinsic/coefficient": coefficient,
            "losses/intrinsic": loss,
        }
        return RewardStep(reward=mixed.reward, intrinsic=raw, streams=tuple(streams), metrics=metrics)

    def state_dict(self, *args: Any, **kwargs: Any) -> State:
        """Everything: networks, optimiser, moments, scale, memories, coefficient position, random streams."""
        return {
            "modules": {name: value.detach().clone() for name, value in super().state_dict(*args, **kwargs).items()},
            "learner": self.trainer.state_dict(),
            "streams": self.streams.state_dict(),
            "steps_seen": self.steps_seen,
        }

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> None:
        """Put back what `state_dict` gave; the next step is then the one that would have come."""
        if isinstance(self.scale, ReturnScale):
            # Its chain per environment has the length of the last batch, which a fresh module does not know.
            self.scale.carry = torch.zeros_like(
                state_dict["modules"]["scale.carry"], device=self.obs_moments.mean.device
            )
        super().load_state_dict(state_dict["modules"], strict, assign)
        self._ahead.forget()
        self.trainer.load_state_dict(state_dict["learner"])
        self.streams.load_state_dict(state_dict["streams"])
        self.steps_seen = int(state_dict["steps_seen"])


def _host(values: Any) -> Any:
    if isinstance(values, Mapping):
        return {key: _host(value) for key, value in values.items()}
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else values


def _tensor(values: Any, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    return torch.as_tensor(values, device=device, dtype=dtype)
