"""One Adam for several seeds steps as their own would, and theirs read its moments."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from conftest import same_state
from intrigue.errors import RunError
from intrigue.ops.optimizer_step import load_optimizer_state, optimizer_state
from intrigue.training.stacked.modules import Stacked, stack_modules
from intrigue.training.stacked.optimizer import StackedAdam

SETTINGS = {"lr": 0.03, "betas": (0.8, 0.95), "eps": 1e-5}


def layers(count: int) -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)) for _ in range(count)]


def adam_of(module: nn.Module, **more: object) -> torch.optim.Adam:
    return torch.optim.Adam(module.parameters(), **{**SETTINGS, **more})


def inputs(count: int, time: int) -> torch.Tensor:
    return torch.randn(count, 8, 4, generator=torch.Generator().manual_seed(time))


def loss_of(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return (module(x) - x[:, :1]).square().mean()


def step_together(stacked: Stacked, adam: StackedAdam, x: torch.Tensor) -> None:
    adam.optimizer.zero_grad()
    stacked.call(loss_of, x).sum().backward()
    adam.optimizer.step()


def step_alone(module: nn.Module, optimizer: torch.optim.Adam, x: torch.Tensor) -> None:
    optimizer.zero_grad()
    loss_of(module, x).backward()
    optimizer.step()


def assert_same(seed: int, module: nn.Module, optimizer: torch.optim.Adam, other: nn.Module, its: torch.optim.Adam):
    for found, wanted in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    found, wanted = optimizer_state(optimizer), optimizer_state(its)
    assert found["param_groups"] == wanted["param_groups"] and set(found["state"]) == set(wanted["state"])
    for index, moments in wanted["state"].items():
        for name, value in moments.items():
            torch.testing.assert_close(found["state"][index][name], value, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("count", [1, 3])
def test_steps_are_those_of_each_seeds_own_adam(count, before):
    """`before` steps alone, so that there are moments to take over; then together."""
    modules = layers(count)
    optimizers = [adam_of(module) for module in modules]
    alone = copy.deepcopy(modules)
    its = [adam_of(module) for module in alone]
    for time in range(before):
        for seed in range(count):
            step_alone(modules[seed], optimizers[seed], inputs(count, time)[seed])
            step_alone(alone[seed], its[seed], inputs(count, time)[seed])
    stacked = stack_modules(modules)
    adam = StackedAdam(stacked, optimizers)
    for time in range(before, before + 4):
        step_together(stacked, adam, inputs(count, time))
        for seed in range(count):
            step_alone(alone[seed], its[seed], inputs(count, time)[seed])
            assert_same(seed, modules[seed], optimizers[seed], alone[seed], its[seed])


def taken(modules: list[nn.Module], optimizers: list[torch.optim.Adam]) -> list[tuple[object, object]]:
    pairs = zip(modules, optimizers, strict=True)
    return [(copy.deepcopy(module.state_dict()), optimizer_state(own)) for module, own in pairs]


def test_after_a_load_the_moments_are_adopted():
    count = 2
    modules = layers(count)
    optimizers = [adam_of(module) for module in modules]
    stacked = stack_modules(modules)
    adam = StackedAdam(stacked, optimizers)
    step_together(stacked, adam, inputs(count, 0))
    kept = taken(modules, optimizers)
    step_together(stacked, adam, inputs(count, 1))
    after = taken(modules, optimizers)
    for seed, (weights, moments) in enumerate(kept):
        modules[seed].load_state_dict(weights)
        load_optimizer_state(optimizers[seed], moments)
    adam.adopt()
    for seed, (_, moments) in enumerate(kept):
        assert same_state(optimizer_state(optimizers[seed]), moments)
    step_together(stacked, adam, inputs(count, 1))
    for seed, (weights, moments) in enumerate(after):
        assert same_state(dict(modules[seed].state_dict()), dict(weights))
        assert same_state(optimizer_state(optimizers[seed]), moments)


def test_what_does_not_fit_is_refused():
    modules = layers(2)
    stacked = stack_modules(modules)
    with pytest.raises(ValueError, match="1 optimisers for a stack of 2"):
        StackedAdam(stacked, [adam_of(modules[0])])
    with pytest.raises(ValueError, match="without amsgrad"):
        StackedAdam(stacked, [adam_of(module, amsgrad=True) for module in modules])
    reverse = torch.optim.Adam(list(modules[1].parameters())[::-1])
    with pytest.raises(ValueError, match="another order"):
        StackedAdam(stacked, [adam_of(modules[0]), reverse])
    optimizers = [adam_of(module) for module in modules]
    step_alone(modules[0], optimizers[0], inputs(2, 0)[0])
    with pytest.raises(RunError, match=r"have learned 0, 1 times .* one by one"):
        StackedAdam(stacked, optimizers)
