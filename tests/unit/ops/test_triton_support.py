"""What kernels are handed: numbers without gaps, once where seeds share them."""

from __future__ import annotations

import pytest
import torch

from intrigue.ops.triton_support import in_order


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_numbers_lie_without_gaps_and_what_is_shared_stays_so(shared, turned):
    one = torch.arange(12.0).reshape(4, 3).T if turned else torch.arange(12.0).reshape(3, 4)
    given = one.expand(5, 3, 4) if shared else torch.stack([one + seed for seed in range(5)])
    given = given.mT.contiguous().mT if turned and not shared else given
    found = in_order(given)
    assert torch.equal(found, given)
    assert all(each.is_contiguous() for each in found)
    assert (found.stride(0) == 0) == shared
    assert (found.data_ptr() == given.data_ptr()) != turned
