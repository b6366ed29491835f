"""Settings of `Curiosity`, and the split of flat keyword options into these and the reward's own. Loads no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from intrigue.errors import ConfigError, Problem, unknown_name
from intrigue.fields import (
    Discount,
    FiniteFloat,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)


@dataclass(frozen=True)
class CuriosityConfig:
    """How a raw bonus becomes the reward a learner maximises."""

    int_coef: FiniteFloat = 1.0  # weight of the bonus: the paper's α
    ext_coef: FiniteFloat = 0.0  # weight of the task's reward: the paper's β; 0 trains on curiosity alone
    int_coef_final: FiniteFloat = 0.0  # where the bonus's weight goes when it is scheduled
    int_coef_steps: NonNegativeInt = 0  # agent steps until int_coef_final is reached, linearly; 0 keeps int_coef
    ext_clip: NonNegativeFloat = 0.0  # task reward clipped to ± this; 0 leaves it (Atari papers: 1)
    streams: Literal["one", "two"] = "one"  # two: intrinsic and extrinsic returns apart, each with its own discount
    scale: Literal["return", "total", "value", "none"] = "return"  # what the bonus is divided by; total as Disagreement
    scale_discount: Discount = 0.99  # of the return whose spread is the scale: RND and Disagreement
    obs_norm: Literal["elementwise", "scalar", "none"] = "elementwise"  # RND per element; Disagreement one scalar
    obs_clip: NonNegativeFloat = 5.0  # RND: normalised observations clipped to ± 5; 0 is off
    obs_moments: Literal["running", "warm-up"] = "running"  # warm-up: fixed after the random steps, as Disagreement
    warmup_steps: NonNegativeInt = 0  # random steps that only feed the observation moments; counted in steps
    learning_rate: PositiveFloat = 1e-4  # Adam: Disagreement, RND and URLB all use 1e-4
    epochs: PositiveInt = 3  # passes over a rollout: Disagreement
    minibatches: PositiveInt = 8  # per pass: Disagreement
    minibatch_of: Literal["rows", "environments"] = "rows"  # environments: whole ones of a rollout, as Disagreement
    feature_noise: NonNegativeFloat = 0.0  # σ of Gaussian noise on the reward's encodings: the paper's last test, 0.25
    feature_noise_units: Literal["absolute", "relative"] = "absolute"  # relative: times the encodings' own spread
    feature_noise_draw: Literal["shared", "member"] = "shared"  # one draw for all ensemble members, or one each
    update_fraction: Fraction = 1.0  # share of rows learned from (RND scales it down with many environments)
    idle: bool = False  # the bonus is neither computed nor learned; its skills stay (URLB's fine-tuning)
    follow: Literal["drawn", "middle", "tried", "regressed"] = "drawn"  # which skill; others than drawn to fine-tune

    @property
    def is_full_batch(self) -> bool:
        """Whether the one minibatch is the whole batch, so that the order of its rows does not matter."""
        return self.minibatches == 1 and self.update_fraction == 1 and self.minibatch_of == "rows"


def problems(cfg: Mapping[str, Any], num_envs: int | None = None) -> list[Problem]:
    """Rules between fields that no single field can state; `num_envs` is how many a rollout has, where it is known."""
    found = []
    if cfg["minibatch_of"] == "environments" and num_envs is not None and cfg["minibatches"] > num_envs:
        text = (
            f"{cfg['minibatches']} sets of whole environments cannot be made of {num_envs}. Use "
            f"--curiosity.minibatches {num_envs} or less, --curiosity.minibatch-of rows, or more environments "
            "(--pool.num-envs)."
        )
        found.append(Problem("curiosity.minibatches", text))
    if cfg["streams"] == "two" and cfg["scale"] == "total":
        found.append(
            Problem("curiosity.scale", "'total' scales the mixed reward, which two streams do not have. Use 'return'.")
        )
    if cfg["obs_moments"] == "warm-up" and cfg["warmup_steps"] == 0 and cfg["obs_norm"] != "none":
        found.append(
            Problem(
                "curiosity.warmup_steps",
                "0, but obs_moments='warm-up' takes its moments from there. Give some, e.g. 10000.",
            )
        )
    return found


def split_options(reward: object, options: Mapping[str, Any]) -> tuple[str, CuriosityConfig, dict[str, Any]]:
    """The reward's name, and keyword options sorted into curiosity's and its own; all wrong ones reported together.

    `reward` is a name, an expression of names, or an instance of a reward's settings.
    """
    from intrigue.config.reward_expression import HINT, MIX, find_problems, parse_reward
    from intrigue.config.schema import check_fields, fields_of, quote
    from intrigue.rewards.registry import REWARDS

    own = fields_of(CuriosityConfig)
    found = parse_reward(reward) if isinstance(reward, str) else REWARDS.read_settings(reward)
    if found is None:
        raise ConfigError([Problem("reward", f"{quote(reward)} is not a name. See `intrigue list rewards`.")])
    name, reward_options = found
    theirs = REWARDS.declaration(name).hints()
    unknown = [each for each in options if each not in own and each not in theirs]
    hint = HINT if name == MIX else ""
    wrong = [Problem(each, unknown_name(each, [*own, *theirs], hint)) for each in unknown]
    own_values, own_problems = check_fields(own, {k: v for k, v in options.items() if k in own}, "")
    reward_options |= {k: v for k, v in options.items() if k in theirs}
    reward_values, reward_problems = check_fields(theirs, reward_options, "")
    wrong += own_problems + reward_problems
    if name == MIX and "expression" in reward_values:
        wrong += [Problem("reward", message) for message in find_problems(reward_values["expression"])]
    if not wrong:
        cfg = CuriosityConfig(**own_values)
        wrong += problems(dataclasses.asdict(cfg))
        if not wrong:
            return name, cfg, reward_values
    raise ConfigError(wrong)
