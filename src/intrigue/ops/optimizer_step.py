"""Optimiser steps that are never taken on a loss that is not finite, and optimiser state as a state tree.

In eager mode a bad loss raises before the step (`backward_and_step`). Where nothing may be read back from the device,
the fused optimiser itself skips the step, and a counter on the device is read later:

    guard = FiniteLossGuard(skip_nonfinite(optimizer, device), device)
    guard.check(loss); optimizer.step()
    guard.bad_losses()                   waits for the device

`LossStep` chooses between the two by the execution mode (`intrigue.ops.execution`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, final

import torch
from torch import Generator, Tensor

from intrigue.errors import NonFiniteError
from intrigue.ops.execution import CudaGraph, Mode, compile_fused, uses_cuda_graph
from intrigue.ops.precision import fast_float32
from intrigue.state import State

EXECUTION_SETTINGS = ("foreach", "fused", "capturable", "differentiable")
"""Optimiser settings about how it computes, not what: a run keeps its own, whatever state it loads."""
LossCheck: TypeAlias = Callable[[Tensor, Tensor], None]
"""(losses (S,), counts (S,)): skips the optimiser's next step if a loss is not finite; adds 1 to the count of each."""


def backward_and_step(
    optimizer: torch.optim.Optimizer, loss: Tensor, error_text: str, max_grad_norm: float = 0.0
) -> None:
    """One step on the loss; raises NonFiniteError instead if it is not finite. `max_grad_norm` 0: no clipping."""
    if not torch.isfinite(loss):
        raise NonFiniteError(error_text)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    if max_grad_norm:
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        torch.nn.utils.clip_grad_norm_(weights, max_grad_norm)
    optimizer.step()


def optimizer_state(optimizer: torch.optim.Optimizer) -> State:
    """Moments by parameter number and the settings of the groups, with string keys only."""
    state = optimizer.state_dict()
    # torch hands out its live moments and takes over those it loads; copies keep two optimisers apart.
    moments = {
        str(index): {name: _copy(value) for name, value in each.items()} for index, each in state["state"].items()
    }
    groups = [
        {key: value for key, value in group.items() if key not in EXECUTION_SETTINGS} for group in state["param_groups"]
    ]
    for group in groups:
        group["lr"] = float(group["lr"])  # a tensor where steps are captured in graphs
    return {"state": moments, "param_groups": groups}


def load_optimizer_state(optimizer: torch.optim.Optimizer, state: State) -> None:
    """Restore what `optimizer_state` returned."""
    groups: list[dict[str, Any]] = []
    rates = [group["lr"] for group in optimizer.param_groups]
    for own, group in zip(optimizer.param_groups, state["param_groups"], strict=True):
        loaded = {key: tuple(value) if key == "betas" else value for key, value in group.items()}
        groups.append({**loaded, **{key: own[key] for key in EXECUTION_SETTINGS if key in own}})
    moments = {
        int(index): {name: _copy(value) for name, value in each.items()} for index, each in state["state"].items()
    }
    optimizer.load_state_dict({"state": moments, "param_groups": groups})
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if isinstance(rate, Tensor):
            group["lr"] = rate.fill_(group["lr"])


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def skip_nonfinite(optimizer: torch.optim.Optimizer, device: torch.device) -> LossCheck:
    """A check for a fused optimiser, which from now on skips steps on losses that are not finite."""
    # The fused optimiser reads this tensor before it changes anything; torch's gradient scaler uses it too.
    skip = torch.zeros((), device=device)
    vars(optimizer)["found_inf"] = skip

    def check(losses: Tensor, counts: Tensor) -> None:
        bad = losses - losses != 0  # x − x is NaN exactly when x is NaN or ±inf
        skip.copy_(bad.any())
        counts.add_(bad)

    return check


@final
class FiniteLossGuard:
    """Skips an optimiser's step when any of its losses is not finite, and counts which."""

    def __init__(self, check: LossCheck, device: torch.device, losses: int = 1) -> None:
        self._check = check
        self.nonfinite_counts = torch.zeros(losses, device=device)
        """How often each loss was not finite since `bad_losses` was last called."""

    def check(self, loss: Tensor) -> None:
        """Skip the next step if one of the losses is not finite. Does not wait for the device."""
        self._check(loss.detach().view(self.nonfinite_counts.shape), self.nonfinite_counts)

    def bad_losses(self) -> list[int]:
        """Indices of the losses that were not finite since the last call. Waits for the device."""
        bad = [index for index, count in enumerate(self.nonfinite_counts.tolist()) if count]
        self.nonfinite_counts.zero_()
        return bad


@final
class LossStep:
    """One guarded optimiser step per call, on a loss of the given tensors.

    `loss_of(*tensors)` returns the loss, and metrics as one tensor (the loss itself, if there are no others). `fused`
    takes Adam's fused form on a CPU too: faster for large networks, other last bits.
    """

    def __init__(
        self,
        loss_of: Callable[..., tuple[Tensor, Tensor]],
        parameters: Iterable[torch.nn.Parameter],
        *,
        learning_rate: float,
        eps: float,
        error_text: str,
        mode: Mode,
        max_grad_norm: float = 0.0,
        generators: Sequence[Generator] = (),
        fused: bool = False,
    ) -> None:
        self.mode: Mode = mode
        self._loss_of = compile_fused(loss_of) if mode == "compile" else loss_of
        self._parameters = list(parameters)
        self._error_text, self._max_grad_norm = error_text, max_grad_norm
        device = self._parameters[0].device
        graph = uses_cuda_graph(mode, device)
        rate: Any = torch.tensor(learning_rate, device=device) if graph else learning_rate
        self.optimizer = torch.optim.Adam(
            self._parameters, lr=rate, eps=eps, fused=True if graph or fused else None, capturable=graph
        )
        self._graph = CudaGraph(self._step, generators, self._mutated_tensors) if graph else None
        if graph:
            _create_moments(self.optimizer)
            self._guard = FiniteLossGuard(skip_nonfinite(self.optimizer, device), device)

    def set_learning_rate(self, rate: float) -> None:
        """The learning rate from the next step on."""
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Take one step and return its metrics."""
        if self._graph is not None:
            metrics: Tensor = self._graph(*inputs)
            return metrics.clone()
        with fast_float32():
            loss, metrics = self._loss_of(*inputs)
            backward_and_step(self.optimizer, loss, self._error_text, self._max_grad_norm)
        return metrics.detach()

    def check(self) -> None:
        """Raise NonFiniteError if a step since the last check was skipped. In eager mode the step itself raises."""
        if self._graph is not None and self._guard.bad_losses():
            raise NonFiniteError(self._error_text)

    def invalidate_graph(self) -> None:
        """To be called after loading the optimiser's state, which replaces the tensors that graphs refer to."""
        if self._graph is not None:
            self._graph.reset()

    def _step(self, *inputs: Tensor) -> Tensor:
        with fast_float32():
            self.optimizer.zero_grad(set_to_none=True)
            loss, metrics = self._loss_of(*inputs)
            loss.backward()
            if self._max_grad_norm:
                torch.nn.utils.clip_grad_norm_(self._parameters, self._max_grad_norm, foreach=True)
            self._guard.check(loss)
            self.optimizer.step()
        return metrics.detach()

    def _mutated_tensors(self) -> Iterable[Tensor]:
        yield self._guard.nonfinite_counts
        yield from self._parameters
        for moments in self.optimizer.state.values():
            yield from moments.values()


def _create_moments(optimizer: torch.optim.Adam) -> None:
    """Creates Adam's moments now: its first step would do so within the capture."""
    for group in optimizer.param_groups:
        for weight in group["params"]:
            optimizer.state[weight] = {
                "step": torch.zeros((), device=weight.device),
                "exp_avg": torch.zeros_like(weight, memory_format=torch.preserve_format),
                "exp_avg_sq": torch.zeros_like(weight, memory_format=torch.preserve_format),
            }
