"""The Triton kernels' logic on a CPU, through Triton's interpreter, against values by hand and against the SVD."""

from __future__ import annotations

import json

import pytest
import torch

from interpreted import found_by
from intrigue.nuclear import nuclear_norm, nuclear_ratio
from nuclear_cases import CASES, CENTERED, GATHERED, RANDOM, close, gathered_rows, random_matrices

pytestmark = pytest.mark.xdist_group("nuclear")  # one process: what the interpreter takes, it takes once

CPU_METHODS = ["native", "gram", "svd"]


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    """What the kernels find, by table and name."""
    return json.loads(found_by("nuclear_interpreted.py", tmp_path_factory).read_text())


@pytest.mark.parametrize("name", CASES)
def test_edges(interpreted, name):
    z, norm, ratio = CASES[name]
    [found_norm], [found_ratio] = interpreted["cases"][name]
    assert close(found_norm, norm)
    assert close(found_ratio, ratio)
    for method in CPU_METHODS:
        for other in (z, z.mT):
            assert close(nuclear_norm(other, method=method, on_nonfinite="propagate").item(), norm)
            assert close(nuclear_ratio(other, method=method, on_nonfinite="propagate").item(), ratio)


@pytest.mark.parametrize("name", CENTERED)
def test_centered_edges(interpreted, name):
    z, *expected = CENTERED[name]
    for place, center in enumerate(("mean", "first")):
        [found] = interpreted["centered"][name][place]
        assert close(found, expected[place])
        for method in CPU_METHODS:
            found = nuclear_norm(z, center, method=method, on_nonfinite="propagate").item()
            assert close(found, expected[place])


@pytest.mark.parametrize("name", RANDOM)
def test_random_matrices(interpreted, name):
    z, center = random_matrices(name)
    [found] = interpreted["random"][name]
    expected = nuclear_norm(z, center, method="svd").double()
    torch.testing.assert_close(torch.tensor(found, dtype=torch.float64), expected, rtol=1e-6, atol=0)
    for method in CPU_METHODS:
        torch.testing.assert_close(nuclear_norm(z, center, method=method).double(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", GATHERED)
def test_gathered_rows(interpreted, name):
    rows, center = gathered_rows(name)
    [found] = interpreted["gathered"][name]
    expected = nuclear_norm(rows.matrices(), center, method="svd")
    torch.testing.assert_close(torch.tensor(found), expected, rtol=1e-6, atol=0)
    for method in CPU_METHODS:
        torch.testing.assert_close(nuclear_norm(rows, center, method=method), expected, rtol=1e-6, atol=0)
