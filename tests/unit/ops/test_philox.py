"""Draws of all seeds at once: the kernel against Philox by hand, and the generators' states afterwards."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interpreted import found_by
from intrigue.ops.philox import DeviceRng
from intrigue.rng import normal, uniform

pytestmark = pytest.mark.xdist_group("philox")  # one process: the interpreter runs once

LOW = (1 << 32) - 1
# Counter, key and words: the known answers that Salmon et al. publish with their code (Random123, kat_vectors).
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((LOW,) * 4, (LOW,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def philox(counter, key):
    """Salmon et al. 2011, section 3.3, ten rounds."""
    (a, b, c, d), (left, right) = counter, key
    for _ in range(10):
        first, second = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (second >> 32) ^ b ^ left, second & LOW, (first >> 32) ^ d ^ right, first & LOW
        left, right = (left + 0x9E3779B9) & LOW, (right + 0xBB67AE85) & LOW
    return a, b, c, d


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_the_philox_of_these_tests_is_the_published_one(counter, key, words):
    assert philox(counter, key) == words


def by_hand(seed, offset, count, gaussian):
    seed &= (1 << 64) - 1
    found = []
    for i in range(count):
        x, y, _, _ = philox((offset // 4 & LOW, offset >> 34, i, 0), (seed & LOW, seed >> 32))
        if gaussian:
            u, v = (x + 0.5) * 2**-32, (y + 0.5) * 2**-32
            found.append(np.sqrt(-2 * np.log(u)) * np.sin(2 * np.pi * v))
        else:
            found.append((x ^ y << 21) * 2.0**-53 + 2.0**-54)
    return np.array(found)


CASES = {
    "one": ([(0, 0)], (1,), False),
    "a pair": ([(12345, 4)], (2, 5), False),
    "seeds": ([(1, 0), (2**63 - 1, 400), (-7, 4 * 2**33)], (2, 3), False),
    "more than a block": ([(99, 8)], (2100,), False),
    "normal": ([(3, 0), (-(2**63), 12)], (2, 7, 3), True),
    "normal, more than a block": ([(5, 16)], (2050,), True),
}


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    """The kernel's results for every case."""
    file = tmp_path_factory.mktemp("philox") / "given.pt"
    torch.save({name: (torch.tensor(states), shape, kind) for name, (states, shape, kind) in CASES.items()}, file)
    return torch.load(found_by("philox_interpreted.py", tmp_path_factory, file))


@pytest.mark.parametrize("name", CASES)
def test_kernel_draws_philox_and_advances(interpreted, name):
    states, shape, gaussian = CASES[name]
    numbers, after = interpreted[name]
    for row, moved, (seed, offset) in zip(numbers, after.tolist(), states, strict=True):
        wanted = by_hand(seed, offset, int(np.prod(shape)), gaussian).reshape(shape)
        np.testing.assert_allclose(row.numpy(), wanted, rtol=0, atol=1e-5 if gaussian else 0)
        assert moved == [seed, offset + 4]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    ("kind", "draw", "dtype"), [("uniform", uniform, torch.float64), ("normal", normal, torch.float32)]
)
def test_without_the_kernel_each_seed_draws_what_it_draws_alone(count, kind, draw, dtype):
    generators, own = ([torch.Generator().manual_seed(seed) for seed in range(count)] for _ in range(2))
    device_rng = DeviceRng(generators, (2, 4), kind)
    device_rng.load()
    for _ in range(3):
        assert torch.equal(device_rng.draw(), torch.stack([draw((2, 4), each, dtype) for each in own]))
    device_rng.store()
    assert all(torch.equal(one.get_state(), other.get_state()) for one, other in zip(generators, own, strict=True))
    assert device_rng.graph_generators == tuple(generators)
    assert not [*device_rng.mutated_tensors()]
