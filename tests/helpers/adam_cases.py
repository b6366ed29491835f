"""Cases for the Adam kernels, and the results of torch's own optimiser in float64."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from intrigue.ops.adam import MAX_TENSORS, AdamScalars, adam_step, precompute_scalars
from intrigue.ops.optimizer_step import FiniteLossGuard
from intrigue.training.stacked.modules import stack_modules
from intrigue.training.stacked.optimizer import StackedAdam

SHAPES = [(1,), (7,), (1024,), (4097,), (2, 3, 5)]
KEPT = ("exp_avg", "exp_avg_sq", "step")
SOUND = (0.5, 3e38, 3e38)  # finite, each of three; their sum would not be
NAN, INF = math.nan, math.inf


@dataclass(frozen=True)
class Case:
    """Steps of Adam over tensors of these shapes, whose gradients are random."""

    shapes: list[tuple[int, ...]]
    steps: int = 4
    rate: float = 3.0  # so large that 1 - 0.999 in float32, which is off by 1.3e-5, shows
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    faults: Mapping[int, tuple[float, ...]] = field(default_factory=dict)  # step: its losses, one of them not finite
    sound: tuple[float, ...] = SOUND  # the losses of all others
    spaced: bool = False  # losses do not lie side by side
    before: list[float] = field(default_factory=list)  # steps already taken, tensor by tensor, with moments of them
    idle: tuple[int, ...] = ()  # tensors that no gradient reaches

    @property
    def skipped(self) -> tuple[int, ...]:
        """The steps that are not taken; their gradients are NaN."""
        return tuple(self.faults)

    def losses(self, time: int) -> tuple[float, ...]:
        """Those of one step."""
        return self.faults.get(time, self.sound)


CASES = {
    **{f"{shape} alone": Case([shape]) for shape in SHAPES},
    "several": Case(SHAPES),
    "several the other way round": Case(SHAPES[::-1], betas=(0.8, 0.95), eps=0.1),
    "nothing remembered": Case(SHAPES, betas=(0.0, 0.0)),
    "skipped": Case(SHAPES, faults={0: (NAN, 1.0, 2.0), 2: (0.5, 1.0, INF)}),
    **{
        f"{fault} in loss {seed}": Case(
            [(7,), (2, 3)],
            steps=3,
            faults={1: (*SOUND[:seed], fault, *SOUND[seed + 1 :])},
            spaced=seed == 1,
        )
        for fault in (NAN, INF, -INF)
        for seed in range(3)
    },
    "infinities that cancel": Case(SHAPES[:2], faults={0: (INF, -INF, 1.0)}),
    "one seed": Case(SHAPES[:2], sound=(-1.0,), faults={1: (INF,)}),
    "five seeds": Case(SHAPES[:2], sound=(-1.0, 0.0, 1e-45, 2.0, 3.0), faults={2: (0.0, 1.0, NAN, 1.0, -INF)}),
    "skipped at last": Case(SHAPES, faults={1: (1.0, NAN, 2.0), 3: (1.0, -INF, 2.0)}),
    "of different ages": Case([(5,), (2000,), (3,)], before=[0.0, 9.0, 4000.0]),
    "of different ages, some of them idle": Case([(5,), (9,), (7,), (3,)], before=[50.0, 9.0, 0.0, 400.0], idle=(0, 2)),
    "an empty one between": Case([(5,), (0,), (3,)]),
    "more than one launch takes": Case([(3,)] * (MAX_TENSORS + 2), steps=2, faults={1: (1.0, 2.0, NAN)}),
}
State = dict[str, list[Tensor]]


def begin(case: Case) -> tuple[State, list[list[Tensor]]]:
    """Weights, moments and counts to begin with, and the gradients of every step."""
    rng = torch.Generator().manual_seed(7)

    def some() -> list[Tensor]:
        return [torch.randn(shape, generator=rng) for shape in case.shapes]

    ages = case.before or [0.0] * len(case.shapes)
    state = {
        "weight": some(),
        "exp_avg": [each * (age > 0) for each, age in zip(some(), ages, strict=True)],
        "exp_avg_sq": [each.square() * (age > 0) for each, age in zip(some(), ages, strict=True)],
        "step": [torch.tensor(age) for age in ages],
        # Between padding that must not change.
        "refused": [torch.tensor([9.0, *([0.0] * len(case.sound)), 9.0])],
    }
    gradients = [some() for _ in range(case.steps)]
    for time in case.skipped:
        for each in gradients[time]:
            each.fill_(float("nan"))
    return state, gradients


def by_kernels(case: Case, device: str) -> list[State]:
    """The state after every step."""
    state, gradients = begin(case)
    state = {name: [each.to(device) for each in several] for name, several in state.items()}
    rate, states = torch.tensor(case.rate, device=device), []
    scalars = AdamScalars.zeros(len(case.shapes), torch.device(device))
    places = [place for place in range(len(case.shapes)) if place not in case.idle]
    for time, given in enumerate(gradients):
        losses = {"losses": _laid_out(case, time, device), "nonfinite_counts": state["refused"][0][1:-1]}
        precompute_scalars(scalars, state["step"], rate, betas=case.betas, **losses)
        several = ([each[place] for place in places] for each in (state["weight"], given, *(state[k] for k in KEPT)))
        weights, some, *kept = several
        moved = [each.to(device) for each in some]
        adam_step(weights, moved, *kept, scalars, places=places, betas=case.betas, eps=case.eps)
        states.append({name: [each.cpu().clone() for each in several] for name, several in state.items()})
    return states


def _laid_out(case: Case, time: int, device: str) -> Tensor:
    """The losses between padding."""
    losses = torch.tensor(case.losses(time))
    padded = torch.full((len(losses) + 2, 2), NAN, device=device)
    held = padded[1:-1, 0] if case.spaced else padded.view(-1)[1 : 1 + len(losses)]
    return held.copy_(losses)


def by_torch(case: Case) -> list[State]:
    """The same in float64, by torch's plain optimiser, one tensor after the other."""
    state, gradients = begin(case)
    weights = [nn.Parameter(each.double()) for each in state["weight"]]
    states = []
    refused = state["refused"][0].double()
    adam = torch.optim.Adam(weights, lr=case.rate, betas=case.betas, eps=case.eps, foreach=False)
    for place, weight in enumerate(weights):
        adam.state[weight] = {name: state[name][place].double() for name in KEPT}
    for time, given in enumerate(gradients):
        for place, (weight, gradient) in enumerate(zip(weights, given, strict=True)):
            weight.grad = None if place in case.idle else gradient.double()
        bad = [not math.isfinite(each) for each in case.losses(time)]
        refused[1:-1] += torch.tensor(bad)
        if not any(bad):
            adam.step()
        moments = {name: [adam.state[weight][name].clone() for weight in weights] for name in KEPT}
        plain = {"weight": [each.detach().clone() for each in weights], "refused": [refused.clone()]}
        states.append({**plain, **moments})
    return states


class Pair(nn.Module):
    """A layer that learns, and a weight that its loss does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(40, 30)
        self.idle = nn.Parameter(torch.randn(3))


def pair_loss(pair: Pair, x: Tensor) -> Tensor:
    return (pair.layer(x) - x[:, :1]).square().mean()


def stacked_steps(seeds: int, *, capturable: bool, device: str = "cpu") -> list[dict[str, Tensor]]:
    """Five steps of a stack behind its guard, the third refused because of the last seed, and what each then has."""
    torch.manual_seed(3)
    pairs = [Pair().to(device) for _ in range(seeds)]
    solos = [torch.optim.Adam([each.layer.weight, each.layer.bias, each.idle], lr=0.02, eps=1e-5) for each in pairs]
    stacked = stack_modules(pairs)
    adam = StackedAdam(stacked, solos, capturable=capturable)
    guard = FiniteLossGuard(adam.look, torch.device(device), seeds)
    for time in range(5):
        x = torch.randn(seeds, 8, 40, generator=torch.Generator().manual_seed(time)).to(device)
        adam.optimizer.zero_grad()
        losses = stacked.call(pair_loss, x)
        seen = losses.detach().clone()
        if time == 2:
            seen[-1] = INF
        if time % 2:  # a check may come before the gradients or after them
            guard.check(seen)
        losses.sum().backward()
        if not time % 2:
            guard.check(seen)
        adam.step()
    refused = guard.nonfinite_counts.tolist()
    assert guard.bad_losses() == [seeds - 1] and not guard.bad_losses(), "reported once"
    return [
        {
            "refused": torch.tensor(refused[seed]),
            **{name: value.cpu() for name, value in pair.state_dict().items()},
            **{
                f"{place}.{name}": value.cpu()
                for place, own in enumerate(solo.state.values())
                for name, value in own.items()
            },
        }
        for seed, (pair, solo) in enumerate(zip(pairs, solos, strict=True))
    ]


def idle_step(*, capturable: bool, device: str = "cpu") -> dict[str, Tensor]:
    """What a refused step counts where no gradient has reached a weight, and that weight."""
    pairs = [Pair().to(device) for _ in range(2)]
    stacked = stack_modules(pairs)
    adam = StackedAdam(stacked, [torch.optim.Adam([each.idle]) for each in pairs], capturable=capturable)
    before, refused = stacked.tensors()["idle"].clone(), torch.zeros(2, device=device)
    adam.look(torch.tensor([1.0, NAN], device=device), refused)
    adam.step()
    return {"refused": refused.cpu(), "moved": (stacked.tensors()["idle"] - before).detach().cpu()}
