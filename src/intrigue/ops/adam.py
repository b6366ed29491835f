"""The launch of `ops.adam_kernels`. No host synchronisation anywhere; two kernels for each MOST_TENSORS tensors.

    look_ahead(outlook, steps, rate, ...)    from the losses, while gradients are still computed
    descend(weights, gradients, ..., outlook)

torch's fused Adam hands 65536 entries to a block of threads: of a network with a million weights that is work for 16 of
a GPU's multiprocessors, and the bandwidth of the others lies idle.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = 1024  # entries of a program
WARPS = 4  # of 32 threads each, so that a thread reads two times 16 bytes of every tensor
# Pointers are arguments of the kernel, of which CUDA takes 4 KiB, and a program chooses among them one by one.
MOST_TENSORS = 32


class Outlook(NamedTuple):
    """What `look_ahead` tells `descend`."""

    corrections: Tensor
    """(N, 2) of N tensors: η / (1 − β₁ᵗ) and 1 / √(1 − β₂ᵗ)."""
    skip: Tensor
    """A number (): whether the step is not to be taken."""

    @classmethod
    def blank(cls, tensors: int, device: torch.device) -> Outlook:
        """Of so many tensors, before the first look."""
        return cls(torch.zeros(tensors, 2, device=device), torch.zeros((), device=device))


@torch.no_grad()
def look_ahead(
    outlook: Outlook,
    steps: Sequence[Tensor],
    rate: Tensor,
    *,
    betas: tuple[float, float],
    losses: Tensor,
    refused: Tensor,
) -> None:
    """What the next step of Adam will be like, from the counts of steps so far, a number () for each tensor.

    It is to be skipped where one of `losses`, (S,), is not finite; each that is not is counted in `refused`, (S,).
    """
    from intrigue.ops import adam_kernels  # not at the top: Triton is published for Linux only

    _check_counts(steps)
    _check_losses(losses, refused, steps)
    logs = [math.log(beta) if beta else -math.inf for beta in betas]
    seeds = losses.numel()
    for start in range(0, len(steps), MOST_TENSORS):
        some = tuple(steps[start : start + MOST_TENSORS])
        adam_kernels.look[(len(some),)](
            some, outlook.corrections[start:], rate, losses, losses.stride(0), refused, outlook.skip,
            LOG_FIRST=logs[0], LOG_SECOND=logs[1], SEEDS=seeds, LANES=1 << (seeds - 1).bit_length(),
            COUNT=start == 0, num_warps=1,
        )  # fmt: skip


@torch.no_grad()
def descend(
    weights: Sequence[Tensor],
    gradients: Sequence[Tensor],
    firsts: Sequence[Tensor],
    seconds: Sequence[Tensor],
    steps: Sequence[Tensor],
    outlook: Outlook,
    *,
    places: Sequence[int],
    betas: tuple[float, float],
    eps: float,
) -> None:
    """One step of Adam, in place, on the weights, the moments `firsts` and `seconds` and the counts `steps`.

    Nothing of that changes if the step is to be skipped. `places`: which of those that were looked at they are.
    """
    from intrigue.ops import adam_kernels

    several = [weights, gradients, firsts, seconds]
    _check(several, steps, places)
    for start in range(0, len(weights), MOST_TENSORS):
        those = slice(start, start + MOST_TENSORS)
        some = [tuple(each[those]) for each in (*several, steps)]
        sizes = tuple(each.numel() for each in some[0])
        ends = tuple(itertools.accumulate(max(1, -(-size // BLOCK)) for size in sizes))  # an empty one counts steps too
        adam_kernels.descend[(ends[-1],)](
            *some, outlook.corrections, outlook.skip, eps, SHARE_FIRST=1 - betas[0], SHARE_SECOND=1 - betas[1],
            SIZES=sizes, BEGINS=(0, *ends[:-1]), PLACES=tuple(places[those]), BLOCK=BLOCK, num_warps=WARPS,
        )  # fmt: skip
    # Kernels write past autograd, which would otherwise not notice that a saved tensor has changed.
    for each in (weights, firsts, seconds, steps):
        torch.autograd.graph.increment_version(list(each))


def _check(several: Sequence[Sequence[Tensor]], steps: Sequence[Tensor], places: Sequence[int]) -> None:
    """Kernels read memory as it lies: of another shape, type or layout they would read something else."""
    if len({len(each) for each in (*several, steps, places)}) > 1:
        raise ValueError("the lists differ in length. Pass a tensor of each kind for every weight.")
    for weight, *others in zip(*several, strict=True):
        for each in (weight, *others):
            if each.shape != weight.shape or each.dtype != torch.float32 or not each.is_contiguous():
                raise ValueError(
                    f"a tensor of shape {tuple(each.shape)}, {each.dtype}, strides {each.stride()} beside a weight of "
                    f"shape {tuple(weight.shape)}. All must be of the weight's shape, float32 and contiguous."
                )
            if each.device != weight.device:
                raise ValueError(f"a tensor on {each.device} beside a weight on {weight.device}. Move it there.")
    _check_counts(steps)


def _check_counts(steps: Sequence[Tensor]) -> None:
    if any(each.dtype != torch.float32 or each.numel() != 1 for each in steps):
        raise ValueError("a count of steps is no float32 number ().")


def _check_losses(losses: Tensor, refused: Tensor, steps: Sequence[Tensor]) -> None:
    if not steps:
        raise ValueError("no tensor to step, so that no kernel would look at the losses.")
    if losses.ndim != 1 or not losses.numel() or not losses.is_floating_point():
        raise ValueError(f"losses of shape {tuple(losses.shape)}, {losses.dtype}. Pass one number for every seed.")
    if refused.shape != losses.shape or refused.dtype != torch.float32 or not refused.is_contiguous():
        raise ValueError(
            f"counts of shape {tuple(refused.shape)}, {refused.dtype}, strides {refused.stride()} for "
            f"{losses.numel()} losses. They must be of the losses' shape, float32 and contiguous."
        )
    if any(each.device != losses.device for each in (refused, *steps)):
        raise ValueError(f"counts are not where the losses are, on {losses.device}. Move them there.")
