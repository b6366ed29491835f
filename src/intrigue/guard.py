"""Optimiser steps that are skipped where the loss is not finite, without anybody looking at it.

A device is not waited for: the fused optimiser itself is told to skip the step, and how often it did is read later.
Where the optimiser's own kernels look at the losses (`cohort.adam_kernels`), nothing is computed before them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor


def judge(losses: Tensor, refused: Tensor, skip: Tensor) -> None:
    """Set `skip`, a number (), to 1 where one of the losses is not finite, else 0; count in `refused` which are not."""
    bad = losses - losses != 0  # a number less itself is 0 unless it is infinite or none
    skip.copy_(bad.any())
    refused.add_(bad)


@final
class Guard:
    """Stands before the steps of one fused optimiser, down the sum of `losses`.

    `step`: takes the optimiser's step in its place. It is handed the losses and `refused`, and does what `judge` does.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        losses: int = 1,
        step: Callable[[Tensor, Tensor], None] | None = None,
    ) -> None:
        self.optimizer, self._take = optimizer, step
        self.refused = torch.zeros(losses, device=device)
        """How often each loss was not finite since the last look."""
        # What a fused optimiser looks at before it changes anything; torch's gradient scaler sets the same.
        self._skip = torch.zeros((), device=device)
        if step is None:
            vars(optimizer)["found_inf"] = self._skip

    def step(self, loss: Tensor) -> None:
        """One step of the optimiser, unless one of the losses it stands at is not finite."""
        each = loss.detach().view(self.refused.shape)
        if self._take is None:
            judge(each, self.refused, self._skip)
            self.optimizer.step()
        else:
            self._take(each, self.refused)

    def tripped(self) -> list[int]:
        """Which losses were not finite since the last look, by their place. Waits for the device."""
        found = [place for place, times in enumerate(self.refused.tolist()) if times]
        self.refused.zero_()
        return found
