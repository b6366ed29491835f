"""The mode that proves that nothing waits does see what waits."""

from __future__ import annotations

import pytest
import torch

from no_sync import NoSync, WouldWait

X = torch.arange(6.0).view(2, 3)
WAITING = {
    "item": lambda: X.sum().item(),
    "float": lambda: float(X[0, 0]),
    "bool": lambda: bool(X.any()),
    "int": lambda: int(X.sum()),
    "tolist": lambda: X[0, 0].tolist(),
    "numpy": lambda: X.numpy(),
    "cpu": lambda: X.cpu(),
    "equal": lambda: torch.equal(X, X),
    "nonzero": lambda: X.nonzero(),
    "where": lambda: torch.where(X > 1),
    "mask": lambda: X[X > 1],
    "mask written": lambda: X.clone().__setitem__(X > 1, 0.0),
    "masked_select": lambda: X.masked_select(X > 1),
    "unique": lambda: X.unique(),
    "repeat_interleave": lambda: X[0].repeat_interleave(torch.arange(3)),
    "solve": lambda: torch.linalg.inv(torch.eye(2)),
    "upload": lambda: torch.tensor([1.0, 2.0]) + 1,
}


@pytest.mark.parametrize("name", WAITING)
def test_what_waits_is_seen(name):
    with pytest.raises(WouldWait), NoSync():
        WAITING[name]()


def test_what_does_not_wait_passes():
    index = torch.tensor([0, 1])
    with NoSync():
        rows = X[index] @ X.mT
        rows = torch.where(rows > 1, rows, 0).masked_fill(rows < 0, 2) + torch.full((), 3.0)
        rows.topk(1).indices.to(torch.float64).copy_(torch.zeros(2, 1))
        X[0].repeat_interleave(torch.arange(3), output_size=3)
