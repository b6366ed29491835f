"""Ensembles batched over members, trunks and initialisations."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from intrigue.nn import networks
from intrigue.nn.networks import ConvTrunk, DynamicsEnsemble, Encoder, init_normc
from intrigue.ops.matmul import EnsembleLinear
from intrigue.spaces import ObsSpec


def test_batched_members_equal_a_loop_over_them():
    torch.manual_seed(0)
    layer = EnsembleLinear(3, 4, 5)
    nn.init.normal_(layer.bias)
    rows = torch.randn(7, 4)
    loop = torch.stack([rows @ layer.weight[k] + layer.bias[k] for k in range(3)])
    torch.testing.assert_close(layer(rows), loop)


def test_dynamics_ensemble_is_the_residual_net():
    torch.manual_seed(0)
    net = DynamicsEnsemble(2, 4, 3, 6, blocks=2)
    features, action = torch.randn(5, 4), torch.randn(5, 3)
    out = net(features, action)

    def linear(layer, k, *inputs):
        return torch.cat(inputs, -1) @ layer.weight[k] + layer.bias[k]

    for k in range(2):
        x = functional.leaky_relu(linear(net.first, k, features, action), 0.2)
        for first, second in net.blocks:
            step = functional.leaky_relu(linear(first, k, x, action), 0.2)
            x = x + linear(second, k, step, action)
        torch.testing.assert_close(out[k], linear(net.last, k, x, action))


def test_members_begin_unlike_each_other():
    torch.manual_seed(0)
    net = DynamicsEnsemble(3, 4, 2, 6, blocks=0)
    out = net(torch.randn(5, 4), torch.zeros(5, 2))
    assert not torch.allclose(out[0], out[1])


def test_trunks_take_images_with_any_leading_axes():
    for style in ("nature", "dis"):
        trunk = ConvTrunk((4, 84, 84), 32, style)
        assert trunk.dense.in_features == 3136  # 64 x 7 x 7, as Mnih et al.
        assert trunk(torch.rand(2, 4, 84, 84)).shape == (2, 32)
    encoder = Encoder(ObsSpec("pixels", (1, 36, 44)), 8, 16)
    assert encoder(torch.rand(3, 2, 1, 36, 44)).shape == (3, 2, 8)


def test_images_are_encoded_alike_in_parts_and_with_gradients(monkeypatch):
    monkeypatch.setattr(networks, "CPU_IMAGES", 2)
    torch.manual_seed(0)
    for style, slope in (("nature", 0.0), ("dis", 0.2)):
        trunk, image = ConvTrunk((2, 36, 36), 5, style).double(), torch.randn(5, 2, 36, 36).double()
        hidden = image
        for conv in trunk.convs:
            hidden = functional.leaky_relu(conv(hidden), slope)
        plain = trunk.dense(hidden.flatten(1))
        with torch.no_grad():
            torch.testing.assert_close(trunk(image), plain)
        torch.testing.assert_close(trunk(image), plain)
        wanted = torch.autograd.grad(plain.square().sum(), trunk.convs[0].weight)
        torch.testing.assert_close(torch.autograd.grad(trunk(image).square().sum(), trunk.convs[0].weight), wanted)


def test_normc_rows_have_unit_length():
    layer = init_normc(nn.Linear(7, 3), 0.5)
    torch.testing.assert_close(layer.weight.norm(dim=1), torch.full((3,), 0.5))
    assert not layer.bias.any()
