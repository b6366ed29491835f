"""Hidden layers: bfloat16 while learning and nowhere else, and values stay float32."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from intrigue.agents.ddpg_networks import Actor, TwinCritic
from intrigue.config.run import resolve
from intrigue.nn.icm_dynamics import IcmDynamics
from intrigue.ops.precision import CPU_INSTRUCTIONS, exact_float32, fast_float32, resolve_matmul_dtype, uses_bfloat16
from intrigue.presets import preset_layer
from intrigue.run.build import resolve_machine_settings
from intrigue.spaces import ActionSpec


def test_used_only_while_learning(bfloat16):
    with fast_float32():
        assert uses_bfloat16()
        with exact_float32():
            assert not uses_bfloat16()
        assert uses_bfloat16()
    assert not uses_bfloat16()
    with exact_float32():
        assert not uses_bfloat16()


def test_not_used_unless_chosen():
    with fast_float32():
        assert not uses_bfloat16()


@pytest.mark.parametrize(
    ("instructions", "there"),
    [((), "float32"), (("_is_avx512_bf16_supported",), "bfloat16"), (("_is_amx_tile_supported",), "bfloat16")],
)
def test_a_cpu_uses_it_only_with_instructions_for_it(monkeypatch, instructions, there):
    for name in CPU_INSTRUCTIONS:
        monkeypatch.setattr(torch.cpu, name, lambda name=name: name in instructions, raising=False)
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert resolve_matmul_dtype("bfloat16", cpu) == there
    assert resolve_matmul_dtype("bfloat16", gpu) == "bfloat16"
    assert resolve_matmul_dtype("float32", cpu) == resolve_matmul_dtype("float32", gpu) == "float32"


def test_torch_still_reports_the_instructions():
    """Under these names: without them bfloat16 would silently never be used."""
    reported = {name: getattr(torch.cpu, name)() for name in CPU_INSTRUCTIONS}
    assert reported["_is_avx512_bf16_supported"] is ("avx512_bf16" in Path("/proc/cpuinfo").read_text().split())
    assert isinstance(reported["_is_amx_tile_supported"], bool)


def test_resolved_settings_name_the_dtype_used(monkeypatch):
    wanted = resolve(preset_layer("nnm-urlb"), {"device": "cpu"})
    for name in CPU_INSTRUCTIONS:
        monkeypatch.setattr(torch.cpu, name, lambda: False)
    assert resolve_machine_settings(wanted).run.products == "float32"
    monkeypatch.setattr(torch.cpu, CPU_INSTRUCTIONS[0], lambda: True)
    assert resolve_machine_settings(wanted).run.products == "bfloat16"


NETWORKS = {
    "actor": (Actor(5, 2, 64), lambda net, x: net(x[:, :5], x[:, :0])),
    "critic": (TwinCritic(5, 2, 64), lambda net, x: net(x[:, :5], x[:, :0], x[:, 5:7])),
    "dynamics": (
        IcmDynamics(3, ActionSpec("continuous", low=(-1.0, -1.0), high=(1.0, 1.0)), 64),
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
    assert resolve(preset_layer("nnm-urlb-small")).run.products == "float32"
    assert resolve(preset_layer("nnm-atari")).run.products == "float32"
