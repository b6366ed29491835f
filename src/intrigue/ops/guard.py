"""Optimiser steps that are skipped where the loss is not finite, without anybody looking at it.

A device is not waited for: the fused optimiser itself is told to skip the step, and how often it did is read later.

    guard = Guard(skipping(optimizer, device), device)
    guard.look(loss); optimizer.step()
    guard.tripped()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor

Look = Callable[[Tensor, Tensor], None]
"""Given losses, (S,): has the next step skipped if one is not finite, and counts in a second tensor, (S,), which."""


def skipping(optimizer: torch.optim.Optimizer, device: torch.device) -> Look:
    """Looks on behalf of a fused optimiser."""
    # What it looks at before it changes anything; torch's gradient scaler sets the same.
    skip = torch.zeros((), device=device)
    vars(optimizer)["found_inf"] = skip

    def look(losses: Tensor, refused: Tensor) -> None:
        bad = losses - losses != 0  # a number less itself is 0 unless it is infinite or none
        skip.copy_(bad.any())
        refused.add_(bad)

    return look


@final
class Guard:
    """Stands before the steps of one optimiser, down the sum of `losses`."""

    def __init__(self, look: Look, device: torch.device, losses: int = 1) -> None:
        self._look = look
        self.refused = torch.zeros(losses, device=device)
        """How often each loss was not finite since it was last asked for."""

    def look(self, loss: Tensor) -> None:
        """Have the next step skipped if one of the losses it stands at is not finite."""
        self._look(loss.detach().view(self.refused.shape), self.refused)

    def tripped(self) -> list[int]:
        """Which losses were not finite since the last time, by their place. Waits for the device."""
        found = [place for place, times in enumerate(self.refused.tolist()) if times]
        self.refused.zero_()
        return found
