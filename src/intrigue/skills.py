"""Skills: what a policy is asked to do for a while, drawn by chance, and how long each lasts.

    one-hot    one of K classes                       DIAYN (arXiv:1802.06070), SMM (arXiv:1906.05274)
    sphere     a unit vector, normal and normalised   APS (arXiv:2108.13956)
    uniform    each entry in [0, 1)                   CIC (arXiv:2202.00161)

A skill is drawn anew at the start of every episode and after `every` steps. It goes to the policy beside the
observation, and to the reward as `Transitions.skill`.
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
    """How skills look and how long one is kept."""

    kind: Literal["one-hot", "sphere", "uniform"]
    width: int
    every: int
    """Steps after which a new one is drawn within an episode."""

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


class SkillCourse:
    """The skill each environment's policy follows now; no skill at all (width 0) without a spec."""

    def __init__(self, spec: SkillSpec | None, envs: int, rng: Generator) -> None:
        self.spec, self.rng = spec, rng
        self.current = torch.zeros(envs, spec.width if spec else 0, device=rng.device)
        self.age = torch.zeros(envs, dtype=torch.int64, device=rng.device)

    def start(self) -> None:
        """A first skill for every environment."""
        self._renew(torch.ones_like(self.age, dtype=torch.bool))

    def advance(self, ended: Tensor) -> None:
        """After one step: new skills where an episode `ended` (N,) or the old one has lasted long enough."""
        if self.spec is not None:
            self.age += 1
            self._renew(ended.to(self.age.device) | (self.age >= self.spec.every))

    def state_dict(self) -> State:
        """Skills and their ages."""
        return {"current": self.current.clone(), "age": self.age.clone()}

    def load_state_dict(self, state: State) -> None:
        """Put back what `state_dict` gave."""
        self.current, self.age = state["current"].to(self.current), state["age"].to(self.age)

    def _renew(self, chosen: Tensor) -> None:
        """New skills for the chosen environments (N,), drawn for all: which one gets which hangs on nobody else."""
        if self.spec is not None and bool(chosen.any()):
            fresh = self.spec.draw(self.age.shape[0], self.rng)
            self.current = torch.where(chosen.unsqueeze(-1), fresh, self.current)
            self.age = torch.where(chosen, 0, self.age)
