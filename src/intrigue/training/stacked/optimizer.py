"""One step of all seeds down their losses, each seed by its own gradient, none where a loss is not finite.

One Adam for a stack of modules, of whose moments the optimiser of each seed sees its own row.

    adam = StackedAdam(stacked, [seed.optimizer for ...])     takes over what the seeds' optimisers have, if anything
    adam.optimizer.zero_grad(); losses.sum().backward()
    adam.look(losses, refused); adam.step()                   a look may also come before the gradients
    optimizer_state(seed.optimizer)                           reads the live moments
    load_optimizer_state(seed.optimizer, ...); adam.adopt()   to be called again after a load: it exchanges the moments

Adam works number by number, so one step over (S, ...) is the step of every seed; `step`, which counts them, is shared.
On a GPU a step is `ops.adam_kernels`, elsewhere torch's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import torch
from torch import Tensor

from intrigue.errors import NonFiniteError, RunError
from intrigue.ops.adam import AdamScalars, adam_step, precompute_scalars
from intrigue.ops.execution import SideStream
from intrigue.ops.optimizer_step import FiniteLossGuard, skip_nonfinite
from intrigue.ops.precision import fast_float32
from intrigue.ops.triton_support import can_run_kernels
from intrigue.training.stacked.modules import Stacked, fuse_for_seeds

MOMENTS = ("exp_avg", "exp_avg_sq")
SETTINGS = ("betas", "eps", "weight_decay", "amsgrad", "maximize")  # of a group, all but the rate


@final
class StackedAdam:
    """The optimiser of the leaves that the seeds' optimisers train, with the settings of the first of them.

    `capturable`: for a step inside a CUDA graph; the rate is then a tensor, to be changed in place.
    """

    def __init__(self, stacked: Stacked, solos: Sequence[torch.optim.Optimizer], *, capturable: bool = False) -> None:
        if len(solos) != stacked.size:
            raise ValueError(f"{len(solos)} optimisers for a stack of {stacked.size}. Pass one for each module.")
        for solo in solos:
            if len(solo.param_groups) != 1 or solo.param_groups[0].get("amsgrad"):
                raise ValueError("only an Adam with one group of parameters and without amsgrad can be stacked.")
        self._solos = list(solos)
        self._leaves = [stacked.leaf(weight) for weight in solos[0].param_groups[0]["params"]]
        for solo in solos:
            if [id(stacked.leaf(weight)) for weight in solo.param_groups[0]["params"]] != [id(x) for x in self._leaves]:
                raise ValueError("the optimisers train different parameters, or in another order.")
        group = solos[0].param_groups[0]
        rate: Any = float(group["lr"])
        if capturable:
            rate = torch.tensor(rate, device=self._leaves[0].device)
        kept = {name: group[name] for name in SETTINGS}
        self.optimizer = torch.optim.Adam(self._leaves, lr=rate, fused=True, capturable=capturable, **kept)
        for leaf in self._leaves:
            self.optimizer.state[leaf] = {
                "step": torch.zeros((), dtype=torch.float32, device=leaf.device),
                **{name: torch.zeros_like(leaf) for name in MOMENTS},
            }
        plain = not (group["weight_decay"] or group["maximize"])
        floats = all(leaf.dtype == torch.float32 and leaf.is_contiguous() for leaf in self._leaves)
        # The kernels read the rate on the device, where it is a tensor for a capture.
        self._fused = capturable and plain and floats and can_run_kernels(self._leaves[0].device)
        self._outlook = AdamScalars.zeros(len(self._leaves), self._leaves[0].device)
        self.look = self._by_kernel if self._fused else skip_nonfinite(self.optimizer, self._leaves[0].device)
        """To be given each seed's loss, and counts of those that were not finite (`intrigue.ops.optimizer_step`)."""
        self.adopt()

    @torch.no_grad()
    def _by_kernel(self, losses: Tensor, refused: Tensor) -> None:
        group = self.optimizer.param_groups[0]
        counts = [self.optimizer.state[leaf]["step"] for leaf in self._leaves]
        precompute_scalars(
            self._outlook, counts, group["lr"], betas=group["betas"], losses=losses, nonfinite_counts=refused
        )

    @torch.no_grad()
    def step(self) -> None:
        """One step down the leaves' gradients, after a look; a leaf without one stays where it is."""
        if not self._fused:
            self.optimizer.step()
            return
        group, state = self.optimizer.param_groups[0], self.optimizer.state
        moved = {place: leaf for place, leaf in enumerate(self._leaves) if leaf.grad is not None}
        adam_step(
            list(moved.values()),
            [leaf.grad for leaf in moved.values() if leaf.grad is not None],
            [state[leaf]["exp_avg"] for leaf in moved.values()],
            [state[leaf]["exp_avg_sq"] for leaf in moved.values()],
            [state[leaf]["step"] for leaf in moved.values()],
            self._outlook,
            places=list(moved),
            betas=group["betas"],
            eps=group["eps"],
        )

    @torch.no_grad()
    def adopt(self) -> None:
        """Take over the moments that the seeds' optimisers have now, and let them see the stack's from here on."""
        for leaf, *weights in zip(self._leaves, *(solo.param_groups[0]["params"] for solo in self._solos), strict=True):
            live = self.optimizer.state[leaf]
            owned = [solo.state.get(weight, {}) for solo, weight in zip(self._solos, weights, strict=True)]
            live["step"].fill_(_steps(owned))
            for seed, (solo, weight, own) in enumerate(zip(self._solos, weights, owned, strict=True)):
                _take(live, own, seed)
                solo.state[weight] = {"step": live["step"], **{name: live[name][seed] for name in MOMENTS}}


def _steps(owned: Sequence[dict[str, Tensor]]) -> float:
    counts = {float(own.get("step", 0.0)) for own in owned}
    if len(counts) > 1:
        told = ", ".join(f"{count:.0f}" for count in sorted(counts))
        raise RunError(
            f"these seeds have learned {told} times and cannot go on in step. Take them up one by one: "
            "`intrigue resume DIR/seed-N`."
        )
    return counts.pop()


def _take(live: dict[str, Tensor], own: dict[str, Tensor], seed: int) -> None:
    for name in MOMENTS:
        row = live[name][seed]
        if name not in own:
            row.zero_()
        elif own[name].data_ptr() != row.data_ptr():
            row.copy_(own[name])


@final
class StackedLoss:
    """The optimiser of one loss of every seed; `solos` are the seeds' own, which see its moments.

    `compiled`: pointwise operations are fused by torch.compile, forward and backward. `ahead`: the method that computes
    the first of the loss's inputs, called by `begin`. `aside`: the stream on which losses are checked while gradients
    are computed.
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
        self._guard = FiniteLossGuard(self._adam.look, device, stacked.size)

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
            with SideStream(self._aside) as looking:
                self._guard.check(losses)
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
        yield self._guard.nonfinite_counts
        for group in self._adam.optimizer.param_groups:
            for weight in group["params"]:
                yield weight
                yield from self._adam.optimizer.state[weight].values()

    def check(self, seeds: Sequence[int]) -> None:
        """Stop if a step since the last look was refused, and say whose loss was at fault. Waits for the device."""
        if faulty := self._guard.bad_losses():
            whose = f"seed {', '.join(str(seeds[row]) for row in faulty)}: " if len(seeds) > 1 else ""
            raise NonFiniteError(f"{whose}{self._refusal}")
