"""What the Adam kernels are tried on, and what torch's own optimiser makes of the same in float64."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from intrigue.cohort.adam import StackedAdam
from intrigue.cohort.adam_fused import MOST_TENSORS, adam_step
from intrigue.cohort.stack import stack_modules

SHAPES = [(1,), (7,), (1024,), (4097,), (2, 3, 5)]
KEPT = ("exp_avg", "exp_avg_sq", "step")


@dataclass(frozen=True)
class Case:
    """Steps of Adam over tensors of these shapes, whose gradients are random."""

    shapes: list[tuple[int, ...]]
    steps: int = 4
    rate: float = 3.0  # so large that 1 - 0.999 in float32, which is off by 1.3e-5, shows
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    skipped: tuple[int, ...] = ()  # the gradients of these steps are no numbers
    before: list[float] = field(default_factory=list)  # steps already taken, tensor by tensor, with moments of them
    follow_rate: float = 0.0


CASES = {
    **{f"{shape} alone": Case([shape]) for shape in SHAPES},
    "several": Case(SHAPES),
    "several the other way round": Case(SHAPES[::-1], betas=(0.8, 0.95), eps=0.1),
    "nothing remembered": Case(SHAPES, betas=(0.0, 0.0)),
    "skipped": Case(SHAPES, skipped=(0, 2)),
    "followed": Case(SHAPES, follow_rate=0.25),
    "followed closely": Case(SHAPES[:2], follow_rate=0.75),
    "followed and skipped": Case(SHAPES, skipped=(1, 3), follow_rate=0.01),
    "of different ages": Case([(5,), (2000,), (3,)], before=[0.0, 9.0, 4000.0]),
    "an empty one between": Case([(5,), (0,), (3,)], follow_rate=0.5),
    "more than one launch takes": Case([(3,)] * (MOST_TENSORS + 2), steps=1),
}
State = dict[str, list[Tensor]]


def begin(case: Case) -> tuple[State, list[list[Tensor]]]:
    """Weights, moments, counts and followers to begin with, and the gradients of every step."""
    rng = torch.Generator().manual_seed(7)

    def some() -> list[Tensor]:
        return [torch.randn(shape, generator=rng) for shape in case.shapes]

    ages = case.before or [0.0] * len(case.shapes)
    state = {
        "weight": some(),
        "follower": some(),
        "exp_avg": [each * (age > 0) for each, age in zip(some(), ages, strict=True)],
        "exp_avg_sq": [each.square() * (age > 0) for each, age in zip(some(), ages, strict=True)],
        "step": [torch.tensor(age) for age in ages],
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
    rate, told = torch.tensor(case.rate, device=device), []
    for time, given in enumerate(gradients):
        adam_step(
            state["weight"], [each.to(device) for each in given], *(state[name] for name in KEPT), rate,
            betas=case.betas, eps=case.eps, skip=torch.tensor(float(time in case.skipped), device=device),
            followers=state["follower"] if case.follow_rate else None, follow_rate=case.follow_rate,
        )  # fmt: skip
        told.append({name: [each.cpu().clone() for each in several] for name, several in state.items()})
    return told


def by_torch(case: Case) -> list[State]:
    """The same in float64, by torch's plain optimiser, one tensor after the other."""
    state, gradients = begin(case)
    weights = [nn.Parameter(each.double()) for each in state["weight"]]
    followers, told = [each.double() for each in state["follower"]], []
    adam = torch.optim.Adam(weights, lr=case.rate, betas=case.betas, eps=case.eps, foreach=False)
    for place, weight in enumerate(weights):
        adam.state[weight] = {name: state[name][place].double() for name in KEPT}
    for time, given in enumerate(gradients):
        for weight, gradient in zip(weights, given, strict=True):
            weight.grad = gradient.double()
        if time not in case.skipped:
            adam.step()
        for follower, weight in zip(followers, weights, strict=True):
            follower.copy_((1 - case.follow_rate) * follower + case.follow_rate * weight.detach())
        moments = {name: [adam.state[weight][name].clone() for weight in weights] for name in KEPT}
        plain = {"weight": [each.detach().clone() for each in weights], "follower": [f.clone() for f in followers]}
        told.append({**plain, **moments})
    return told


class Pair(nn.Module):
    """A layer that learns, a slower copy of it, and a weight that its loss does not look at."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(40, 30)
        self.idle = nn.Parameter(torch.randn(3))
        self.slow = nn.Linear(40, 30).requires_grad_(False)
        self.slow_idle = nn.Parameter(torch.zeros(3), requires_grad=False)
        self.register_buffer("mean", torch.ones(2))
        self.register_buffer("slow_mean", torch.zeros(2))


def pair_loss(pair: Pair, x: Tensor) -> Tensor:
    return (pair.layer(x) - x[:, :1]).square().mean()


def stacked_steps(
    seeds: int, *, capturable: bool, device: str = "cpu", partly: bool = False
) -> list[dict[str, Tensor]]:
    """Five steps of a stack through `StackedAdam.step`, the third of them skipped, and what each seed then has.

    `partly`: not all that is trained is followed.
    """
    torch.manual_seed(3)
    pairs = [Pair().to(device) for _ in range(seeds)]
    solos = [torch.optim.Adam([each.layer.weight, each.layer.bias, each.idle], lr=0.02, eps=1e-5) for each in pairs]
    stacked = stack_modules(pairs)
    tensors = stacked.tensors()
    adam = StackedAdam(stacked, solos, capturable=capturable)
    slow, fast = ["slow.bias", "slow_mean", "slow_idle"], ["layer.bias", "mean", "idle"]
    if not partly:
        slow, fast = [*slow, "slow.weight"], [*fast, "layer.weight"]
    adam.follow([tensors[name] for name in slow], [tensors[name] for name in fast], 0.1)
    for time in range(5):
        x = torch.randn(seeds, 8, 40, generator=torch.Generator().manual_seed(time)).to(device)
        adam.optimizer.zero_grad()
        stacked.call(pair_loss, x).sum().backward()
        adam.step(torch.tensor(float(time == 2), device=device))
    return [
        {
            **{name: value.cpu() for name, value in pair.state_dict().items()},
            **{
                f"{place}.{name}": value.cpu()
                for place, own in enumerate(solo.state.values())
                for name, value in own.items()
            },
        }
        for pair, solo in zip(pairs, solos, strict=True)
    ]
