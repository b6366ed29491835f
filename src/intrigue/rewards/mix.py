"""A bonus composed of others by an expression (ours; the parts have their own papers).

    r = f(r_1, …, r_k)

    r_i: `bonuses`, the raw bonuses of the rewards that `expression` names.  f: the expression, built from

    a + b, a - b, -a, a*b, sum(a, …), product(a, …)     pointwise; a number is a constant or a weight
    clip(a, low, high)                                  a held between two limits
    schedule(a, start, end, steps)                      w·a, w from start to end, linearly over agent steps, then end
    gate(a, by, above)                                  a where by > above, else 0

`--reward "0.5*nnm + rnd"` is short for this reward with that expression; `nnm(n=7)` gives a part its options. A part
named twice with the same text is one module. The value of each part and the weight of each schedule are logged.

Differs from the paper: none to differ from. The parts meet as they are, unscaled: `Curiosity` scales their mixture, so
weights must allow for the parts' own sizes. All parts learn with one optimiser, each from its own loss, unweighted.
Cost: that of its parts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from intrigue.config.expression_tree import (
    Clip,
    Gate,
    Leaf,
    Node,
    Number,
    Product,
    Schedule,
    Sum,
    bounds,
    labels,
    leaves,
    schedules,
    to_text,
)
from intrigue.config.reward_expression import parse
from intrigue.rewards.base import IntrinsicReward, Traits
from intrigue.rewards.registry import REWARDS, register_reward
from intrigue.rng import Rng, seeded_construction
from intrigue.seeding import SEED_LIMIT
from intrigue.skills import SkillSpec
from intrigue.spaces import Spaces
from intrigue.types import Components, Transitions


@dataclass(frozen=True)
class MixConfig:
    """Settings of a composed bonus."""

    expression: str = "0.5*nnm + rnd"  # rewards, numbers, + - *, clip, schedule, gate; this one is an example, ours

    def problems(self, num_envs: int) -> list[str]:
        """What is wrong with the expression."""
        from intrigue.config.reward_expression import find_problems

        return find_problems(self.expression, num_envs)


@register_reward("mix", config=MixConfig)
@final
class Mix(IntrinsicReward):
    """A tree of sums, products, clips, schedules and gates over other rewards."""

    steps_seen: Tensor

    def __init__(self, cfg: MixConfig, spaces: Spaces) -> None:
        super().__init__(cfg, spaces)
        self.tree = parse(cfg.expression)
        self.leaves = leaves(self.tree)
        self.part_names = labels([leaf.name for leaf in self.leaves])
        self.schedules = schedules(self.tree)
        self.schedule_names = labels(["schedule"] * len(self.schedules))
        # Each part has a stream of its own, so that adding a part does not change the networks of the others.
        seed = int(torch.randint(SEED_LIMIT, ()))
        self.bonuses = nn.ModuleList()
        for leaf in self.leaves:
            with seeded_construction(seed, to_text(leaf)):
                self.bonuses.append(_class_of(leaf)(_settings(leaf), spaces))
        self.noise = self.each[0].noise  # what is reported of the encodings is the first part's
        self.needs_order = any(bonus.needs_order for bonus in self.each)
        self.follows_steps = bool(self.schedules) or any(bonus.follows_steps for bonus in self.each)
        self.traits = Traits(
            inputs=frozenset(name for bonus in self.each for name in bonus.traits.inputs),
            vmappable=all(bonus.traits.vmappable for bonus in self.each),
        )
        signs = {leaf: bonus.signed for leaf, bonus in zip(self.leaves, self.each, strict=True)}
        self.signed = bounds(self.tree, signs)[0] < 0
        self.register_buffer("steps_seen", torch.zeros((), dtype=torch.int64))

    @property
    def each(self) -> list[IntrinsicReward]:
        """The parts, in order of appearance."""
        return [bonus for bonus in self.bonuses if isinstance(bonus, IntrinsicReward)]

    @classmethod
    def refusal(cls, cfg: MixConfig, spaces: Spaces) -> str | None:
        """Why a part cannot serve these spaces, or why the parts do not go together."""
        parts = leaves(parse(cfg.expression))
        refused = {to_text(leaf): _class_of(leaf).refusal(_settings(leaf), spaces) for leaf in parts}
        reasons = [f"{name}: {reason}" for name, reason in refused.items() if reason]
        asking = {to_text(leaf): spec for leaf in parts if (spec := _class_of(leaf).skills(_settings(leaf)))}
        if len(set(asking.values())) > 1:
            reasons.append(f"{' and '.join(asking)} each ask the policy for skills of another kind. Use one of them.")
        return " ".join(reasons) or None

    @classmethod
    def skills(cls, cfg: MixConfig) -> SkillSpec | None:
        """The skills of the one part that has any."""
        asked = (_class_of(leaf).skills(_settings(leaf)) for leaf in leaves(parse(cfg.expression)))
        return next((spec for spec in asked if spec), None)

    def score(self, batch: Transitions) -> Tensor:
        """The value of the expression, (T, N)."""
        return self.score_parts(batch)[0]

    def score_parts(self, batch: Transitions) -> tuple[Tensor, Components]:
        """The value of the expression, and that of each reward in it, with the rewards' own parts below their name."""
        parts: dict[str, Tensor] = {}
        for name, bonus in zip(self.part_names, self.each, strict=True):
            parts[name], own = bonus.score_parts(batch)
            parts |= {f"{name}/{inner}": value for inner, value in own.items()}
        weights = {each: self._weight(each) for each in self.schedules}
        for name, each in zip(self.schedule_names, self.schedules, strict=True):
            parts[name] = weights[each].to(batch.reward).expand(batch.reward.shape)
        values = {leaf: parts[name] for leaf, name in zip(self.leaves, self.part_names, strict=True)}
        return evaluate(self.tree, values, weights), parts

    def loss(self, batch: Transitions, rng: Rng) -> Tensor:
        """The losses of all parts, added."""
        losses = [bonus.loss(batch, rng) for bonus in self.each]
        return sum(losses[1:], losses[0])

    @torch.no_grad()
    def observe(self, batch: Transitions, parts: Components) -> None:
        """Every part observes, with its own parts; the schedules move on."""
        for name, bonus in zip(self.part_names, self.each, strict=True):
            mine = f"{name}/"
            own = {key.removeprefix(mine): value for key, value in parts.items() if key.startswith(mine)}
            bonus.observe(batch, own)
        self.steps_seen += batch.reward.numel()

    @torch.no_grad()
    def set_step(self, step: int) -> None:
        """Schedules go by the agent's steps instead of the rows observed."""
        self.steps_seen.fill_(step)
        for bonus in self.each:
            bonus.set_step(step)

    def _weight(self, each: Schedule) -> Tensor:  # ()
        share = (self.steps_seen.double() / each.steps).clamp(max=1)
        return each.start + share * (each.end - each.start)


def evaluate(node: Node, values: dict[Leaf, Tensor], weights: dict[Schedule, Tensor]) -> Tensor:
    """The value of a tree, (T, N), or () for a number; numbers take the type of the tensors they meet."""

    def value(part: Node) -> Tensor:
        return evaluate(part, values, weights)

    match node:
        case Number(number):
            any_value = next(iter(values.values()))
            return torch.full((), number, dtype=torch.float64, device=any_value.device)
        case Leaf():
            return values[node]
        case Sum(parts):
            first, *rest = map(value, parts)
            return sum(rest, first)
        case Product(parts):
            return math.prod(map(value, parts[1:]), start=value(parts[0]))
        case Clip(part, low, high):
            return value(part).clamp(low, high)
        case Schedule(part):
            return weights[node] * value(part)
        case Gate(part, by, above):
            inner = value(part)
            return torch.where(value(by) > above, inner, torch.zeros_like(inner))


def _class_of(leaf: Leaf) -> type[IntrinsicReward]:
    return REWARDS.get(leaf.name).cls


def _settings(leaf: Leaf) -> Any:
    entry = REWARDS.get(leaf.name)
    return entry.config(**{**entry.defaults, **dict(leaf.options)})
