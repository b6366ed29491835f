"""Skills: vectors sampled at random that condition the policy for some steps.

    one-hot    one of K classes                       DIAYN (arXiv:1802.06070), SMM (arXiv:1906.05274)
    sphere     a unit vector, normal and normalised   APS (arXiv:2108.13956)
    uniform    each entry in [0, 1)                   CIC (arXiv:2202.00161)

A skill is sampled at the start of every episode and after `every` steps. The policy gets it together with the
observation, the reward as `Transitions.skill`. In a training loop of your own:

    sampler = SkillSampler(curiosity.skills, envs, rng)
    sampler.start()
    ...                            # act under sampler.current (N, K), store it with the transition, then
    sampler.advance(ended)          # after every step
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor
from torch.nn import functional

from intrigue.state import State


@dataclass(frozen=True)
class SkillSpec:
    """Kind and width of skills, and how long one is kept."""

    kind: Literal["one-hot", "sphere", "uniform"]
    width: int
    every: int
    """Steps after which a new one is drawn within an episode; 0 keeps one for the whole episode."""

    def draw(self, count: int, rng: Generator) -> Tensor:
        """(count, width) fresh skills, on the generator's device."""
        match self.kind:
            case "one-hot":
                picked = torch.randint(self.width, (count,), generator=rng, device=rng.device)
                return functional.one_hot(picked, self.width).float()
            case "sphere":
                return functional.normalize(torch.randn(count, self.width, generator=rng, device=rng.device), dim=-1)
            case "uniform":
                return torch.rand(count, self.width, generator=rng, device=rng.device)


class SkillSampler:
    """The current skill of each environment; of width 0 without a spec."""

    def __init__(self, spec: SkillSpec | None, envs: int, rng: Generator) -> None:
        self.spec, self.rng = spec, rng
        self.current = torch.zeros(envs, spec.width if spec else 0, device=rng.device)
        self.age = torch.zeros(envs, dtype=torch.int64, device=rng.device)
        self.held: Tensor | None = None
        """The fixed skill (K,) of all environments; None while skills are sampled."""

    def hold(self, skill: Tensor) -> None:
        """Fix this skill (K,) for all environments until the next call."""
        self.held = skill.to(self.current)
        self._resample(torch.ones_like(self.age, dtype=torch.bool))

    def start(self) -> None:
        """Sample a first skill for every environment."""
        self._resample(torch.ones_like(self.age, dtype=torch.bool))

    def advance(self, ended: Tensor, valid: Tensor | None = None) -> None:
        """After one step: new skills where an episode `ended` (N,) or the old one has lasted long enough.

        Rows that are not `valid` (N,), the resets of environments that reset one step late, do not count as steps.
        """
        if self.spec is None:
            return
        self.age = self.age + (1 if valid is None else valid.to(self.age))
        over = ended.to(self.age.device)
        self._resample(over | (self.age >= self.spec.every) if self.spec.every else over)

    def state_dict(self) -> State:
        """Skills, their ages, and the fixed one."""
        held = None if self.held is None else self.held.clone()
        return {"current": self.current.clone(), "age": self.age.clone(), "held": held}

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        self.current, self.age = state["current"].to(self.current), state["age"].to(self.age)
        held = state["held"]
        self.held = None if held is None else held.to(self.current)

    def _resample(self, chosen: Tensor) -> None:
        """New skills for the chosen environments (N,).

        Sampled for all of them at every step, so that one environment's skills do not depend on when others end.
        """
        if self.spec is not None:
            held, count = self.held, self.age.shape[0]
            fresh = self.spec.draw(count, self.rng) if held is None else held.expand_as(self.current)
            self.current = torch.where(chosen.unsqueeze(-1), fresh, self.current)
            self.age = torch.where(chosen, 0, self.age)


def check_skill(spec: SkillSpec | None, skill: Tensor) -> None:
    """Refuse transitions without the skills (T, N, K) that a reward asks for, or with skills it does not use."""
    width = skill.shape[-1] if skill.dim() else 0
    if spec is None and width:
        raise ValueError(f"skill has {width} numbers for each transition; this reward knows no skills. Leave it out.")
    if spec is not None and width != spec.width:
        raise ValueError(
            f"this reward asks the policy for skills, {spec.width} numbers ({spec.kind}) for each transition; "
            f"{f'each has {width}' if width else 'there are none'}. Pass as skill= what the policy followed: "
            "intrigue.skills.SkillSampler(curiosity.skills, envs, rng) samples them."
        )
