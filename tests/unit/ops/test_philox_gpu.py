"""On a CUDA device: the numbers of torch's generators, also captured, and the generators' states afterwards."""

from __future__ import annotations

import pytest
import torch

from intrigue.ops.execution import CudaGraph
from intrigue.ops.philox import DeviceRng
from intrigue.rng import normal, uniform

pytestmark = pytest.mark.gpu
KINDS = [("uniform", uniform, torch.float64), ("normal", normal, torch.float32)]
SHAPES = [(1,), (1, 6), (2, 1024), (2, 1024, 6), (2, 1024, 21)]


def generators(count):
    return [torch.Generator("cuda").manual_seed(2**62 + 7 * seed) for seed in range(count)]


def same(kind, found, wanted):
    if kind == "uniform":
        return torch.equal(found, wanted)
    return torch.allclose(found, wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(("kind", "draw", "dtype"), KINDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [1, 8])
def test_draws_are_torchs(kind, draw, dtype, shape, count):
    ours, own = generators(count), generators(count)
    for each in (*ours, *own):  # not from the beginning
        uniform((3,), each)
    device_rng = DeviceRng(ours, shape, kind)
    device_rng.load()
    for _ in range(3):
        assert same(kind, device_rng.draw(), torch.stack([draw(shape, each, dtype) for each in own]))
    device_rng.store()
    for one, other in zip(ours, own, strict=True):
        assert torch.equal(one.get_state(), other.get_state())
        assert torch.equal(uniform((5,), one), uniform((5,), other))


@pytest.mark.parametrize(("kind", "draw", "dtype"), KINDS)
def test_captured_draws_advance(kind, draw, dtype):
    ours, own = generators(2), generators(2)
    device_rng = DeviceRng(ours, (2, 100), kind)
    assert device_rng.graph_generators == ()
    device_rng.load()
    captured = CudaGraph(device_rng.draw, device_rng.graph_generators, device_rng.mutated_tensors)
    for _ in range(4):
        assert same(kind, captured(), torch.stack([draw((2, 100), each, dtype) for each in own]))
    device_rng.store()
    for each in (*ours, *own):  # others draw meanwhile
        normal((9,), each)
    device_rng.load()
    assert same(kind, captured(), torch.stack([draw((2, 100), each, dtype) for each in own]))
