"""Inputs of kernels: contiguous for each seed, and still shared where seeds share them."""

from __future__ import annotations

import pytest
import torch

from intrigue.ops.triton_support import contiguous_per_seed


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_contiguous_for_each_seed_and_shared_parts_stay_shared(shared, turned):
    one = torch.arange(12.0).reshape(4, 3).T if turned else torch.arange(12.0).reshape(3, 4)
    given = one.expand(5, 3, 4) if shared else torch.stack([one + seed for seed in range(5)])
    given = given.mT.contiguous().mT if turned and not shared else given
    found = contiguous_per_seed(given)
    assert torch.equal(found, given)
    assert all(each.is_contiguous() for each in found)
    assert (found.stride(0) == 0) == shared
    assert (found.data_ptr() == given.data_ptr()) != turned
