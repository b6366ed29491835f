"""Optimiser steps that are skipped where the loss is not finite, without anybody looking at it.

A device is not waited for: the fused optimiser itself is told to skip the step, and how often it did is read later.
Where an optimiser looks at the losses in its own way (`cohort.adam`), that is what is done instead.
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

    `look`: does in its own way what `judge` does. It is handed the losses and `refused`.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        losses: int = 1,
        look: Callable[[Tensor, Tensor], None] | None = None,
    ) -> None:
        self.optimizer, self._look = optimizer, look
        self.refused = torch.zeros(losses, device=device)
        """How often each loss was not finite since the last look."""
        # What a fused optimiser looks at before it changes anything; torch's gradient scaler sets the same.
        self._skip = torch.zeros((), device=device)
        if look is None:
            vars(optimizer)["found_inf"] = self._skip

    def look(self, loss: Tensor) -> None:
        """Have the next step skipped if one of the losses it stands at is not finite."""
        each = loss.detach().view(self.refused.shape)
        if self._look is None:
            judge(each, self.refused, self._skip)
        else:
            self._look(each, self.refused)

    def tripped(self) -> list[int]:
        """Which losses were not finite since the last look, by their place. Waits for the device."""
        found = [place for place, times in enumerate(self.refused.tolist()) if times]
        self.refused.zero_()
        return found
