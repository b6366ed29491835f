"""One step of all seeds down their losses, each seed by its own gradient, none where a loss is not finite."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import torch
from torch import Tensor

from intrigue.errors import NonFiniteError
from intrigue.ops.execution import Beside
from intrigue.ops.optimizer_step import Guard
from intrigue.ops.precision import fast_float32
from intrigue.training.stacked.adam import StackedAdam
from intrigue.training.stacked.modules import Stacked, fuse_for_seeds


@final
class Descent:
    """The optimiser of one loss of every seed; `solos` are the seeds' own, which see its moments.

    `compiled`: what is no matrix product is fused by torch.compile, forward and backward. `ahead`: a method that gives
    the first of the loss's inputs, to be called by `begin`. `aside`: where losses are looked at while gradients are
    computed.
    """

    def __init__(
        self,
        stacked: Stacked,
        loss_of: Callable[..., tuple[Tensor, Tensor]],
        solos: Sequence[torch.optim.Optimizer],
        refusal: str,
        *,
        compiled: bool,
        ahead: str = "",
        aside: torch.cuda.Stream | None = None,
    ) -> None:
        device = solos[0].param_groups[0]["params"][0].device
        self._stacked, self._loss_of, self._refusal = stacked, loss_of, refusal
        self._losses = fuse_for_seeds(self._plain_losses) if compiled else self._plain_losses
        self._name_ahead, self._aside = ahead, aside
        self._ahead = fuse_for_seeds(self._plain_ahead) if compiled else self._plain_ahead
        self._ones = torch.ones(stacked.size, device=device)
        self._adam = StackedAdam(stacked, solos, capturable=device.type == "cuda")
        self._leaves = [leaf for group in self._adam.optimizer.param_groups for leaf in group["params"]]
        self._guard = Guard(self._adam.look, device, stacked.size)

    def begin(self, *inputs: Any) -> Any:
        """What the loss is made of, with gradients, before the rest of its inputs are there."""
        with fast_float32():
            return self._ahead(*inputs)

    def __call__(self, *inputs: Any) -> Tensor:
        """One step; what was noted, (S, ...)."""
        noted = self.slope(*inputs)
        self.step()
        return noted

    def slope(self, *inputs: Any) -> Tensor:
        """All gradients of the losses; what was noted, (S, ...). Changes no weight."""
        with fast_float32():
            self._adam.optimizer.zero_grad(set_to_none=True)
            losses, noted = self._losses(*inputs)
            with Beside(self._aside) as looking:
                self._guard.look(losses)
            torch.autograd.backward([losses], [self._ones], inputs=self._leaves)
            looking.wait()
        return noted

    def step(self) -> None:
        """Down the slope that was found last, unless a loss there is not finite."""
        self._adam.step()

    def _plain_losses(self, *inputs: Any) -> tuple[Tensor, Tensor]:
        losses, noted = self._stacked.call(self._loss_of, *inputs)
        # Here, so that a compiled gradient does not ask for one of it; and a copy, for it may be the loss itself.
        return losses, noted.detach().clone()

    def _plain_ahead(self, *inputs: Any) -> Any:
        return self._stacked.call(self._name_ahead, *inputs)

    def changes(self) -> Iterator[Tensor]:
        """All that a step writes to."""
        yield self._guard.refused
        for group in self._adam.optimizer.param_groups:
            for weight in group["params"]:
                yield weight
                yield from self._adam.optimizer.state[weight].values()

    def check(self, seeds: Sequence[int]) -> None:
        """Stop if a step since the last look was refused, and say whose loss was at fault. Waits for the device."""
        if faulty := self._guard.tripped():
            whose = f"seed {', '.join(str(seeds[row]) for row in faulty)}: " if len(seeds) > 1 else ""
            raise NonFiniteError(f"{whose}{self._refusal}")
