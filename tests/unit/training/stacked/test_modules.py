"""Modules of several seeds as one: whose storage is whose, what a call gives, and what is refused."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from conftest import make_batch, make_spaces
from intrigue.nn.normalize import ReturnScale, RunningMoments
from intrigue.training.stacked.modules import Stacked, stack_modules
from intrigue.types import Encoded, Prepared, Transitions

SEEDS = 3


class Toy(nn.Module):
    """A trained layer reached by two ways, a tied weight, a frozen layer, statistics and a constant."""

    def __init__(self, width: int = 2) -> None:
        super().__init__()
        self.layer = nn.Linear(3, width)
        self.again = nn.ModuleDict({"layer": self.layer})
        self.tied = nn.Linear(3, width, bias=False)
        self.tied.weight = self.layer.weight
        self.frozen = nn.Linear(3, width).requires_grad_(False)
        self.moments = RunningMoments((3,))
        self.register_buffer("offset", torch.randn(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.again["layer"](x) + 2 * self.tied(x) + self.frozen(x).tanh() + self.offset

    def loss(self, x: Tensor, weight: float = 1.0) -> Tensor:
        return weight * self(x).square().mean()

    def watch(self, x: Tensor) -> None:
        self.moments.observe(x)

    def several(self, x: Tensor) -> dict[str, object]:
        return {"pair": (x + 1, {"moments": self.moments.moments()}), "note": "text", "none": None}

    def rebind(self) -> Tensor:
        self.offset = self.offset + 1
        return self.offset


def toys(count: int = SEEDS) -> list[Toy]:
    torch.manual_seed(0)
    return [Toy() for _ in range(count)]


@pytest.fixture(params=[1, SEEDS])
def made(request) -> tuple[list[Toy], list[Toy], Stacked]:
    """Modules, equal ones that are left alone, and the stack."""
    modules = toys(request.param)
    alone = copy.deepcopy(modules)
    return modules, alone, stack_modules(modules)


def rows(count: int) -> Tensor:
    return torch.randn(count, 5, 3, generator=torch.Generator().manual_seed(1))


def test_each_module_is_a_row_of_the_stack(made):
    modules, alone, stacked = made
    weights = [module.layer.weight for module in modules]
    assert set(stacked.leaves) == {"layer.weight", "layer.bias"}
    assert set(stacked.fixed) == {
        "frozen.weight", "frozen.bias", "moments.count", "moments.mean", "moments.var", "offset",
    }  # fmt: skip
    for seed, (module, other) in enumerate(zip(modules, alone, strict=True)):
        assert stacked.leaf(module.layer.weight) is stacked.leaves["layer.weight"]
        assert module.layer.weight is weights[seed] is module.tied.weight, "optimisers hold on to the parameters"
        for key, value in other.state_dict().items():
            assert torch.equal(module.state_dict()[key], value), key
        assert torch.equal(stacked.fixed["offset"][seed], other.offset)
    with torch.no_grad():
        stacked.leaves["layer.weight"][-1].fill_(7)
        stacked.fixed["moments.mean"][-1].fill_(8)
    assert (modules[-1].tied.weight == 7).all() and (modules[-1].state_dict()["moments.mean"] == 8).all()
    if len(modules) > 1:
        assert torch.equal(modules[0].layer.weight, alone[0].layer.weight), "the others stay"


def test_loading_writes_into_the_stack(made):
    modules, _, stacked = made
    torch.manual_seed(5)
    fresh = Toy()
    modules[-1].load_state_dict(fresh.state_dict())
    for key, value in fresh.state_dict().items():
        name = "layer.weight" if key.endswith("weight") and not key.startswith("frozen") else key.removeprefix("again.")
        assert torch.equal(stacked.tensors()[name][-1], value), key


def test_calls_and_gradients_are_those_of_each_module(made):
    modules, alone, stacked = made
    x = rows(len(modules))
    found = stacked.call("loss", x, 0.5)
    found.sum().backward()
    assert found.shape == (len(modules),)
    assert all(weight.grad is None for module in modules for weight in module.parameters())
    for seed, other in enumerate(alone):
        wanted = other.loss(x[seed], 0.5)
        wanted.backward()
        torch.testing.assert_close(found[seed], wanted)
        torch.testing.assert_close(stacked.leaves["layer.weight"].grad[seed], other.layer.weight.grad)
        torch.testing.assert_close(stacked.leaves["layer.bias"].grad[seed], other.layer.bias.grad)
    assert all(tensor.grad is None for tensor in stacked.fixed.values())


def test_what_is_changed_in_place_lands_in_the_stack(made):
    modules, alone, stacked = made
    x = rows(len(modules))
    assert stacked.call("watch", x) is None
    stacked.call(lambda module: module.offset.add_(1))
    for seed, other in enumerate(alone):
        other.watch(x[seed])
        torch.testing.assert_close(modules[seed].moments.mean, other.moments.mean)
        torch.testing.assert_close(stacked.fixed["moments.var"][seed], other.moments.var)
        torch.testing.assert_close(modules[seed].offset, other.offset + 1)


def test_nested_results_keep_their_shape(made):
    modules, _, stacked = made
    x = rows(len(modules))
    found = stacked.call("several", x)
    assert found["note"] == "text" and found["none"] is None
    torch.testing.assert_close(found["pair"][0], x + 1)
    assert type(found["pair"][1]["moments"]).__name__ == "Moments"
    assert found["pair"][1]["moments"].mean.shape == (len(modules), 3)


@pytest.mark.parametrize("kind", [Transitions, Prepared, Encoded])
def test_batches_go_in_and_out(made, kind):
    modules, _, stacked = made
    count = len(modules)
    parts = make_batch(make_spaces()).tensors()
    more = {Transitions: 0, Prepared: 2, Encoded: 4}[kind]
    batch = kind(*(torch.stack([each + seed if each.is_floating_point() else each for seed in range(count)])
                   for each in (*parts, *parts[:1] * more)))  # fmt: skip
    found = stacked.call(lambda module, given: given.replace(reward=given.reward + module.offset), batch)
    assert type(found) is kind
    for seed in range(count):
        torch.testing.assert_close(found.reward[seed], batch.reward[seed] + modules[seed].offset)
        assert torch.equal(found.obs[seed], batch.obs[seed])


def test_axes_and_shared_arguments(made):
    modules, alone, stacked = made
    x, shared = rows(len(modules)), torch.tensor([1.0, 2.0])
    found = stacked.call(lambda module, a, b: module(a) + b, x.movedim(0, 1), shared, in_dims=(1, None))
    for seed, other in enumerate(alone):
        torch.testing.assert_close(found[seed], other(x[seed]) + shared)


def test_rebinding_is_refused_and_leaves_the_module_as_it_was(made):
    modules, alone, stacked = made
    with pytest.raises(RuntimeError, match="offset was assigned a new tensor by rebind"):
        stacked.call("rebind")
    with pytest.raises(ZeroDivisionError):
        stacked.call(lambda module: 1 / 0)
    for module, other in zip(modules, alone, strict=True):
        assert torch.equal(module.offset, other.offset) and module.offset.dim() == 0


def test_the_scale_of_returns_cannot_be_stacked():
    """Its chain is assigned anew with every batch: the case the module's docstring names."""
    stacked = stack_modules([ReturnScale(0.9) for _ in range(2)])
    with pytest.raises(RuntimeError, match="carry was assigned"):
        stacked.call("observe", torch.ones(2, 4, 3))


def test_only_modules_of_one_structure_are_stacked():
    with pytest.raises(ValueError, match="module 1 is built otherwise"):
        stack_modules([Toy(2), Toy(4)])
    thawed = Toy()
    thawed.frozen.requires_grad_(True)
    with pytest.raises(ValueError, match="built otherwise"):
        stack_modules([Toy(), thawed])
    apart = Toy()
    apart.tied.weight = nn.Parameter(apart.layer.weight.detach().clone())
    with pytest.raises(ValueError, match="built otherwise"):
        stack_modules([Toy(), apart])
    with pytest.raises(ValueError, match="at least one"):
        stack_modules([])


def test_one_seed_takes_one_row():
    with pytest.raises(ValueError, match="one seed is stacked"):
        stack_modules(toys(1)).call("loss", rows(2))
