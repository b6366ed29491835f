"""Wide products: bfloat16 while learning and nowhere else, and values stay float32."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from intrigue.agents.ddpg_nets import Actor, TwinCritic
from intrigue.config import resolve
from intrigue.plain_dynamics import PlainDynamics
from intrigue.precision import exact_float32, fast_float32, use_products, wide_products
from intrigue.presets import preset_layer
from intrigue.spaces import ActionSpec


def product(rows):
    with wide_products(rows):
        return nn.functional.linear(rows, torch.eye(3))


def test_taken_while_learning_alone(bfloat16):
    rows = torch.tensor([[1.0, 2.0, 257.0]])  # eight bits of mantissa, one more than bfloat16 has
    with fast_float32():
        assert product(rows).dtype == torch.bfloat16
        assert product(rows)[0, 2] == 256
        with exact_float32():
            within = product(rows)
    for outside in (product(rows), *_exact(rows), within):
        assert outside.dtype == torch.float32
        assert outside[0, 2] == 257


def _exact(rows):
    with exact_float32():
        yield product(rows)


def test_not_taken_unless_chosen_nor_on_another_device():
    rows = torch.ones(1, 3)
    with fast_float32():
        assert product(rows).dtype == torch.float32
    use_products("bfloat16")
    try:
        with fast_float32():
            assert product(rows).dtype == torch.float32  # a CPU is not meant
    finally:
        use_products("float32")


def test_an_autocast_of_the_caller_stays_on():
    with torch.autocast("cpu", torch.bfloat16):
        assert product(torch.ones(1, 3)).dtype == torch.bfloat16


NETWORKS = {
    "actor": (Actor(5, 2, 64), lambda net, x: net(x[:, :5], x[:, :0])),
    "critic": (TwinCritic(5, 2, 64), lambda net, x: net(x[:, :5], x[:, :0], x[:, 5:7])),
    "dynamics": (
        PlainDynamics(3, ActionSpec("continuous", low=(-1.0, -1.0), high=(1.0, 1.0)), 64),
        lambda net, x: net(x[:, :3], x[:, 3:6], x[:, 5:7].tanh()),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_learn_in_it_and_give_float32(bfloat16, name):
    network, call = NETWORKS[name]
    rows = torch.randn(40, 7, generator=torch.Generator().manual_seed(0))
    exact = call(network, rows)
    with fast_float32():
        rough = call(network, rows)
        rough.sum().backward()
    assert rough.dtype == torch.float32
    assert not torch.equal(rough, exact)
    torch.testing.assert_close(rough, exact, rtol=0.02, atol=0.02)
    for weight in network.parameters():
        assert weight.grad is not None and weight.grad.dtype == torch.float32
        weight.grad = None


def test_presets_of_urlb_choose_it_and_others_do_not():
    assert resolve(preset_layer("nnm-urlb")).run.products == "bfloat16"
    assert resolve(preset_layer("nnm-atari")).run.products == "float32"
