"""Optimiser steps that are skipped where the loss is not finite, without anybody looking at it.

A device is not waited for: the fused optimiser itself is told to skip the step, and how often it did is read later.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor


@final
class Guard:
    """Stands before the steps of one fused optimiser."""

    def __init__(self, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
        self.optimizer = optimizer
        self.refused = torch.zeros((), device=device)
        """How many steps were skipped since the last look."""
        # What a fused optimiser looks at before it changes anything; torch's gradient scaler sets the same.
        self._skip = torch.zeros((), device=device)
        vars(optimizer)["found_inf"] = self._skip

    def step(self, loss: Tensor) -> None:
        """One step of the optimiser, unless a number of the loss it stands at, of any shape, is not finite."""
        total = loss.detach().sum()
        self._skip.copy_(total - total != 0)  # a number less itself is 0 unless it is infinite or none
        self.refused.add_(self._skip)
        self.optimizer.step()

    def tripped(self) -> bool:
        """Whether a step was skipped since the last look. Waits for the device."""
        found = float(self.refused) > 0
        self.refused.zero_()
        return found
